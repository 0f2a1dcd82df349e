"""Owns: tests of `torch-fl doctor`: each thing that can be wrong is a row, and none ends it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from command import answer, run
from throwaway import Shelf

CHAIN = ("torch", "binary", "libraries", "activation", "routes", "device", "import torch")


def examine(status: int = 1, *more: str, **env: str | None) -> dict[str, dict[str, Any]]:
    """The findings of a doctor that ends with `status`, by check."""
    said = answer("doctor", *more, status=status, **env)
    assert said["ok"] is (status == 0)
    return {finding["check"]: finding for finding in said["findings"]}


def states(found: dict[str, dict[str, Any]], *checks: str) -> list[str]:
    return [found[check]["state"] for check in checks]


def test_all_is_well() -> None:
    done = run("doctor")
    assert done.returncode == 0, done.stdout
    assert done.stderr == ""
    *rows, empty, last = done.stdout.splitlines()
    assert (empty, last) == ("", "All is well.")
    assert re.fullmatch(r"check +state  what", rows[0])
    checks = ("python", "torch-fl-core", "settings", "library paths", "plugin host", "selection")
    for check, row in zip((*checks, *CHAIN), rows[1:], strict=True):
        assert re.match(rf"{check} +ok +\S", row), row


# -- torch


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function from the source of a module `torch` to a PYTHONPATH that has it."""

    def make(source: str) -> str:
        folder = tmp_path_factory.mktemp("broken")
        (folder / "torch.py").write_text(source)
        return str(folder)

    return make


BROKEN = {
    "a library is missing": (
        "raise ImportError('libaccel.so.7: cannot open shared object file')",
        r"libaccel\.so\.7: cannot open",
    ),
    "a crash": (
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        r"signal 11 \(SIGSEGV\)",
    ),
    "an abort": ("import os; os.abort()", r"signal 6 \(SIGABRT\)"),
    "sys.exit": ("import sys; sys.exit(3)", r"exit code 3$"),
    "sys.exit(0)": ("import sys; sys.exit(0)", r"exit code 0$"),
    "os._exit(0)": ("import os; os._exit(0)", r"exit code 0$"),
    "an empty shell": ("", r"has no attribute '__version__'"),
    "a mistake": ("import os; os.nothing", r"AttributeError: .*nothing"),
    "killed": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", r"signal 9 \(SIGKILL\)"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_torch_is_a_row(case: str, broken: Any) -> None:
    source, said = BROKEN[case]
    found = examine(PYTHONPATH=broken(source))
    assert found["torch"]["state"] == "FAILED"
    assert re.search(said, found["torch"]["said"])
    assert "einstall torch" in found["torch"]["advice"]
    assert (
        states(found, *(check for check in CHAIN if check not in ("torch", "libraries")))
        == ["not tried"] * 5
    )
    assert found["device"]["said"] == "torch failed"
    assert states(found, "plugin host", "selection") == ["ok", "ok"]
    assert found["PYTHONPATH"]["state"] == "warning", "it brings the torch that is broken"


def test_a_crash_shows_where_it_was(broken: Any) -> None:
    done = run("doctor", PYTHONPATH=broken(BROKEN["a crash"][0]))
    assert done.returncode == 1
    assert re.search(r"^torch +FAILED +signal 11 \(SIGSEGV\)$", done.stdout, re.MULTILINE)
    assert re.search(r"^  \| +File \".*torch\.py\", line 1", done.stdout, re.MULTILINE)
    assert "  To do: " in done.stdout
    assert re.search(r"^1 of \d+ checks failed\.$", done.stdout, re.MULTILINE)


def test_a_torch_that_hangs_is_a_row(broken: Any) -> None:
    hanging = broken("import subprocess, time\nsubprocess.Popen(['sleep', '77'])\ntime.sleep(77)")
    found = examine(1, "--time-limit", "3", PYTHONPATH=hanging)
    assert found["torch"]["said"] == "no answer within 3 s"
    assert "torch.py" in found["torch"]["output"]


def test_a_binary_for_another_torch_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, types\n"
        "build = sys.modules['torch_fl._build'] = types.ModuleType('torch_fl._build')\n"
        "build.TORCH = '1.13.1'\n"
    )
    found = examine(PYTHONPATH=str(tmp_path))
    assert states(found, "torch", "binary", "device") == ["ok", "FAILED", "not tried"]
    assert "built for torch 1.13" in found["binary"]["said"]
    assert found["device"]["said"] == "binary failed"


# -- plugins


def test_a_plugin_that_crashes_is_named(shelf: Shelf) -> None:
    found = examine(PYTHONPATH=shelf.site("crashes", "good"), FLAGOS_DEVICE_ROOT=str(shelf.folder))
    crashed = found["plugin crashes"]
    assert crashed["state"] == "FAILED"
    assert "signal 11 (SIGSEGV)" in crashed["said"]
    assert "torch_fl_crashes.py" in crashed["output"]
    assert "FLAGOS_DISABLE_PLUGINS=crashes" in crashed["advice"]
    assert states(found, "plugin good", "plugin host") == ["ok", "ok"]
    assert states(found, "torch", "binary") == ["ok", "ok"], "they have nothing to do with it"
    rest = ("selection", "activation", "routes", "device", "import torch")
    assert states(found, *rest) == ["not tried"] * 5


def test_a_plugin_that_ends_the_process_without_a_word_is_named(shelf: Shelf) -> None:
    found = examine(PYTHONPATH=shelf.site("leaves"), FLAGOS_DEVICE_ROOT=str(shelf.folder))
    assert found["plugin leaves"]["state"] == "FAILED"
    assert found["plugin leaves"]["said"].endswith("exit code 0")
    assert states(found, "plugin host", "selection") == ["ok", "not tried"]


def test_a_plugin_that_hangs_is_named(shelf: Shelf, broken: Any) -> None:
    path = os.pathsep.join([shelf.site("waits"), broken("raise ImportError('not here')")])
    found = examine(1, "--time-limit", "2", PYTHONPATH=path)
    assert found["plugin waits"]["said"] == "asking it: no answer within 2 s"
    assert "torch_fl_waits.py" in found["plugin waits"]["output"]


def test_records_are_rows(shelf: Shelf, broken: Any) -> None:
    plugins = shelf.site("noimport", "unknown", "good")
    path = os.pathsep.join([plugins, broken("raise ImportError('not here')")])
    found = examine(
        PYTHONPATH=path,
        FLAGOS_DEVICE_ROOT=str(shelf.folder),
        FLAGOS_DISABLE_PLUGINS="nonesuch",
    )
    failed = found["plugin noimport"]
    assert failed["state"] == "FAILED"
    assert "a_module_that_is_not_there" in failed["said"]
    assert "Traceback" in failed["output"]
    assert found["plugin unknown"]["state"] == "warning"
    assert "torch_fl_rutime" in found["plugin unknown"]["said"]
    assert found["plugin good"]["state"] == "ok"
    assert "'nonesuch'" in found["plugin settings"]["said"]
    assert found["selection"]["state"] == "FAILED", "good and unknown fit equally well"


def test_packages_that_are_missing_do_not_stop_it(tmp_path: Path, broken: Any) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nfor name in ('importlib_metadata', 'rich', 'pluggy'):\n"
        "    sys.modules[name] = None\n"
    )
    path = os.pathsep.join([str(tmp_path), broken("raise ImportError('not here')")])
    found = examine(PYTHONPATH=path)
    assert states(found, "plugins", "torch") == ["FAILED", "FAILED"]
    assert "pluggy" in found["plugins"]["said"]


# -- settings, paths and routes


def test_variables_that_are_wrong_are_rows(broken: Any) -> None:
    found = examine(
        PYTHONPATH=broken("raise ImportError('not here')"),
        FLAGOS_PLUGN="host",
        FLAGOS_HOST_DEVICES="none",
        FLAGOS_STRICT="perhaps",
    )
    assert found["FLAGOS_PLUGN"]["state"] == "FAILED"
    assert found["FLAGOS_PLUGN"]["advice"] == "Did you mean FLAGOS_PLUGIN?"
    assert "must be a number" in found["FLAGOS_HOST_DEVICES"]["said"]
    assert "must be 0 or 1" in found["FLAGOS_STRICT"]["said"]
    assert found["selection"]["state"] == "FAILED"
    assert "settings" not in found


def test_library_paths_that_bring_another_torch_are_named(tmp_path: Path, broken: Any) -> None:
    (tmp_path / "libtorch_other.so").touch()
    found = examine(
        PYTHONPATH=broken("raise ImportError('not here')"),
        LD_LIBRARY_PATH=f"/nonexistent:{tmp_path}",
        LD_PRELOAD="/nonexistent/lib.so",
    )
    assert str(tmp_path) in found["LD_LIBRARY_PATH"]["said"]
    assert "libtorch_other.so" in found["LD_LIBRARY_PATH"]["said"]
    assert "does not exist" in found["LD_PRELOAD"]["said"]


def test_routes_that_cannot_be_read_are_a_row(tmp_path: Path) -> None:
    config = tmp_path / "my.conf"
    config.write_text("mm = boxing\nadd = boxng\n")
    found = examine(FLAGOS_BACKEND_CONFIG=str(config))
    assert states(found, "activation", "routes", "device") == ["ok", "FAILED", "not tried"]
    assert f"{config}:2:7" in found["routes"]["said"]
    assert "boxing" in found["routes"]["said"]
    assert found["import torch"]["state"] in ("ok", "FAILED"), "as `import torch` does it"


@pytest.mark.parametrize("limit", ["0", "-1", "inf", "soon"])
def test_a_wrong_time_limit_is_wrong_usage(limit: str) -> None:
    done = run("doctor", f"--time-limit={limit}")
    assert done.returncode == 2
    assert "--time-limit" in done.stderr
