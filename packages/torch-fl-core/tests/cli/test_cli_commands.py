"""Owns: tests of `torch-fl info`, `routes` and `plugins`, and of how quickly the help is there."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import answer, output, run
from throwaway import Shelf

import torch_fl
from torch_fl.cli import info, routes

HELP_MS = 300


def test_the_help_is_there_at_once() -> None:
    """Of the processor's time: other processes may be running."""

    def processor_s() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    seconds = []
    for _ in range(5):
        begin = processor_s()
        output("--help")
        seconds.append(processor_s() - begin)
    assert min(seconds) * 1e3 < HELP_MS


@pytest.mark.parametrize("words", ["--help", "doctor --help", "--version", "completion bash"])
def test_what_needs_no_torch_imports_none(words: str) -> None:
    code = f"""
import sys, torch_fl_entry
sys.argv[1:] = {words.split()!r}
try:
    torch_fl_entry.main()
except SystemExit as stopped:
    assert stopped.code == 0
assert "torch" not in sys.modules and "rich" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_a_reader_that_has_seen_enough() -> None:
    script = "import sys, torch_fl_entry; sys.exit(torch_fl_entry.main())"
    done = subprocess.run(
        f"{sys.executable} -c '{script}' routes --all | head -1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("operator")
    assert done.stderr == ""


# -- plugins


def test_plugins_without_any() -> None:
    header, row = output("plugins").splitlines()
    assert header.split() == [
        "plugin",
        "distribution",
        "version",
        "stage",
        "found",
        "devices",
        "why",
    ]
    assert re.match(r"host +torch-fl-core +\S+ +chosen +yes +- +No other plugin fits", row)


@pytest.mark.parametrize("command", ["plugins", "routes", "info"])
def test_what_a_plugin_prints_is_not_among_the_json(command: str, shelf: Shelf) -> None:
    env = {"PYTHONPATH": shelf.site("chatty"), "FLAGOS_DEVICE_ROOT": str(shelf.folder)}
    assert answer(command, **env)
    assert "hello" in run(command, **env).stderr


def test_plugins_say_how_far_each_came_and_why(shelf: Shelf) -> None:
    env = {
        "PYTHONPATH": shelf.site("good", "noimport", "unknown"),
        "FLAGOS_DEVICE_ROOT": str(shelf.folder),
        "FLAGOS_DISABLE_PLUGINS": "unknown,nonesuch",
    }
    text = output("plugins", **env)
    assert re.search(r"^good +torch-fl-good +1\.0 +chosen +exact +2 +\S", text, re.MULTILINE)
    assert re.search(r"^noimport +torch-fl-noimport +1\.0 +import +- +- +It cannot", text, re.M)
    assert re.search(r"^unknown .* skipped ", text, re.MULTILINE)
    assert re.search(r"^  error +Importing 'torch_fl_noimport' raised", text, re.MULTILINE)
    assert "names 'nonesuch'" in text
    assert "Traceback" not in text
    assert "Traceback" in output("plugins", "--verbose", **env)
    said = answer("plugins", **env)
    assert said["plugin"] == "good"
    assert {record["name"]: record["stage"] for record in said["plugins"]} == {
        "good": "chosen",
        "noimport": "import",
        "unknown": "skipped",
        "host": "candidate",
    }


def test_plugins_say_when_none_can_be_used() -> None:
    text = output("plugins", FLAGOS_PLUGIN="hots")
    assert "no plugin is used\nFLAGOS_PLUGIN is 'hots'" in text
    assert "Did you mean 'host'?" in text


# -- routes


def test_routes_without_any() -> None:
    text = output("routes")
    assert text.startswith("Every operator is on its own route.\n\noperators by route\n")
    numbers = {name: int(n) for name, n in re.findall(r"^(\w+) +(\d+)  ", text, re.MULTILINE)}
    assert numbers["boxing"] > 1000
    assert sum(numbers.values()) > 3000


def test_routes_that_something_changes(tmp_path: Path) -> None:
    config = tmp_path / "my.conf"
    config.write_text("mm = cpu\nadd.Tensor[int64, bool] = composite, cpu\n")
    env = {"FLAGOS_BACKEND_CONFIG": str(config), "FLAGOS_OP_mul__Tensor": "cpu"}
    text = output("routes", **env)
    assert re.search(rf"^aten::mm +all +cpu +config, {config}:1:1: mm = cpu$", text, re.MULTILINE)
    assert re.search(r"^aten::add.Tensor +bool, int64 +composite +config, ", text, re.MULTILINE)
    assert re.search(r"^aten::mul.Tensor +all +cpu +environment, .*FLAGOS_OP_mul", text, re.M)
    assert re.search(rf"^config +2 +{config}$", text, re.MULTILINE)
    assert not re.search(r"^aten::sub", text, re.MULTILINE)

    said = answer("routes", "--dtype", "float32", **env)
    assert "aten::add.Tensor" not in {row["operator"] for row in said["operators"]}
    said = answer("routes", "--dtype", "torch.long", **env)
    assert "aten::add.Tensor" in {row["operator"] for row in said["operators"]}
    assert [layer["layer"] for layer in said["layers"]] == ["config", "environment"]
    assert said["counts"]["cpu"] >= 2


def test_all_routes() -> None:
    text = output("routes", "--all")
    rows = re.findall(r"^(aten::\S+) +all +(\S+)", text, re.MULTILINE)
    found = dict(rows)
    assert len(found) > 3000
    assert found["aten::add.Tensor"] == "boxing"
    assert found["aten::empty.memory_format"] == "core"
    assert found["aten::linear"] == "implicit"
    assert [name for name, _ in rows] == sorted(found)


@pytest.mark.parametrize("name", ["add", "aten::add", "add.Tensor", "aten::add.Tensor", "ad?"])
def test_one_operator_is_explained(name: str) -> None:
    text = output("routes", name)
    assert re.search(r"^aten::add\.Tensor -> boxing\n  decided by  ", text, re.MULTILINE)


def test_one_operator_for_programs() -> None:
    (said,) = answer("routes", "mm.default", "--dtype", "half", FLAGOS_OP_mm="cpu")
    assert (said["operator"], said["dtype"], said["routes"]) == ("aten::mm", "float16", ["cpu"])
    assert said["layer"] == "environment"
    assert {other["route"] for other in said["alternatives"]} >= {"boxing", "cpu"}


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("aded", 1, "there is no operator 'aded'. Did you mean "),
        ("add --dtype in64", 2, "there is no dtype 'in64'. Did you mean int64?"),
        ("add --all", 2, "but not both"),
    ],
)
def test_mistakes(words: str, status: int, said: str) -> None:
    done = run("routes", *words.split())
    assert done.returncode == status
    assert said in done.stderr
    assert done.stdout == ""


def test_counting_is_quick_enough() -> None:
    begin = time.perf_counter()
    assert sum(routes.counts(routes.rows()).values()) > 3000
    assert time.perf_counter() - begin < 3


# -- info


def test_info_has_what_a_report_needs(shelf: Shelf) -> None:
    text = output(
        "info",
        FLAGOS_HOST_DEVICES="2",
        FLAGOS_HOST_MEMORY="1GiB",
        FLAGOS_PLUGN="x",
        FLAGOS_OP_mm="cpu",
    )
    for line in (
        rf"  torch-fl-core +{re.escape(torch_fl.__version__)}",
        r"  torch +2\.\d+\.\d+\S*",
        r"  python +3\.\d+\.\d+ \(CPython\)",
        r"  name +host",
        r"  why +\S.*",
        r"  runtime +host",
        r"  target +cpu",
        r"flagos:1 +.*  1\.0 GiB +1\.0 GiB +\d+ +\d+\.\d+",
        r"  boxing +\d+",
        r"  environment +1 lines from environment variable FLAGOS_OP_mm",
        r"  FLAGOS_HOST_DEVICES +2",
        r"  FLAGOS_PLUGN +no such setting; did you mean FLAGOS_PLUGIN\?",
    ):
        assert re.search(f"^{line}$", text, re.MULTILINE), f"{line}\n{text}"


def test_info_for_programs() -> None:
    said = answer("info")
    assert said["error"] is None
    assert said["plugin"]["name"] == "host"
    assert [device["index"] for device in said["devices"]] == [0]
    assert said["devices"][0]["total_memory"] > 0
    assert said["fallbacks"] == []


def test_info_of_a_backend_that_does_not_start() -> None:
    done = run("info", FLAGOS_HOST_DEVICES="none")
    assert done.returncode == 1
    assert "error\nThe plugin 'host'" in done.stdout
    assert re.search(r"^  torch +2\.", done.stdout, re.MULTILINE)
    assert re.search(r"^  boxing +\d+|^  none +\d+", done.stdout, re.MULTILINE)


def test_info_where_torch_is_broken(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libaccel.so.7 is missing')")
    done = run("info", PYTHONPATH=f"{tmp_path}{os.pathsep}")
    assert done.returncode == 1
    assert re.search(r"^  torch +cannot be imported: libaccel", done.stdout, re.MULTILINE)
    assert "`torch-fl doctor` says more" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_a_command_that_needs_the_device_says_why_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libaccel.so.7 is missing')")
    done = run("routes", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("torch-fl routes: flagos cannot be activated: ")
    assert "Traceback" not in done.stderr


def test_info_in_a_process_that_has_fallen_back() -> None:
    found = info.collect()
    assert found.plugin["name"] == "host"
    assert isinstance(found.fallbacks, list)
