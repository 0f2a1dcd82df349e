"""Owns: the tests of the checks on wheels: a good wheel passes them all, each fault is named.

(That the real wheels pass, and that they work once installed, is `./dev wheels`.)
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

import pytest

from ci.dev import second_environment, wheel_build, wheel_checks, wheel_trials
from ci.dev.cli import ROOT
from ci.dev.wheel_file import Wheel

LICENSE = (ROOT / "LICENSE").read_text(encoding="utf-8")
CONTEXT = wheel_checks.Context(ROOT, "2.13", Path("patchelf"))
INFO = "torch_fl_abc-0.1.0.dist-info"
PLUGIN = {
    "torch_fl_abc/__init__.py": "",
    "torch_fl_abc/plugin.py": "",
    "torch_fl_abc/py.typed": "",
    f"{INFO}/METADATA": """Metadata-Version: 2.4
Name: torch-fl-abc
Version: 0.1.0
License-Expression: Apache-2.0
Requires-Dist: torch-fl-core>=0.1,<0.2
Provides-Extra: test
Requires-Dist: pytest>=8; extra == "test"
""",
    f"{INFO}/entry_points.txt": "[torch_fl.plugins]\nabc = torch_fl_abc.plugin\n",
    f"{INFO}/licenses/LICENSE": LICENSE,
    f"{INFO}/licenses/NOTICE": "torch-fl-abc",
}


def _write(folder: Path, files: dict[str, str], record: dict[str, str] | None = None) -> Wheel:
    """A plugin's wheel with these files, and a RECORD of `record`, by default of the same."""
    rows = [f"{INFO}/RECORD,,"]
    for name, text in (files if record is None else record).items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        rows.append(f"{name},sha256={digest.decode()},{len(text.encode())}")
    path = folder / "torch_fl_abc-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, f"{INFO}/RECORD": "\n".join(rows)}.items():
            archive.writestr(name, text)
    return Wheel(path)


def _wrong(wheel: Wheel) -> dict[str, str]:
    found = {title: " ".join(check(wheel, CONTEXT)) for title, check in wheel_checks.CHECKS.items()}
    return {title: text for title, text in found.items() if text}


def test_a_good_wheel_passes(tmp_path: Path) -> None:
    wheel = _write(tmp_path, PLUGIN)
    assert _wrong(wheel) == {}
    assert wheel.name == "torch-fl-abc"
    assert wheel.requirements() == {"torch-fl-core": ">=0.1,<0.2"}
    assert wheel.extras() == {"test": {"pytest": ">=8"}}


@pytest.mark.parametrize(
    ("name", "text", "title", "says"),
    [
        ("torch_fl/extra.py", "", "contents", "torch_fl/extra.py is no file of torch-fl-abc"),
        ("abc.pth", "import abc", "contents", "abc.pth"),
        ("torch_fl_abc.libs/libz.so", "", "contents", "torch_fl_abc.libs/libz.so"),
        ("torch_fl_abc/tests/test_a.py", "", "contents", "does not belong in a wheel"),
        ("torch_fl_abc/kernel.o", "", "contents", "kernel.o"),
        ("torch_fl_abc/__pycache__/a.pyc", "", "contents", "__pycache__"),
        (f"{INFO}/licenses/LICENSE", "MIT", "licences", "another text"),
        (f"{INFO}/licenses/NOTICE", "", "licences", "NOTICE is missing"),
        (
            f"{INFO}/entry_points.txt",
            "[torch.backends]\nabc = torch_fl_abc.plugin",
            "entry points",
            "torch.backends is the core's alone",
        ),
        (
            f"{INFO}/entry_points.txt",
            "[torch_fl.plugins]\nabc = torch_fl_abc.gone",
            "entry points",
            "torch_fl_abc.gone leads to no module",
        ),
        (
            f"{INFO}/METADATA",
            PLUGIN[f"{INFO}/METADATA"].replace(">=0.1,<0.2", ">=0.1"),
            "version windows",
            "upper end",
        ),
        (f"{INFO}/METADATA", "Version: 0.1.0", "licences", "None"),
        ("torch_fl_abc/lib.so", "", "libraries", "has not been repaired"),
    ],
)
def test_each_fault_is_named(
    tmp_path: Path, name: str, text: str, title: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel_checks, "_patchelf", lambda *words: "")
    assert says in _wrong(_write(tmp_path, {**PLUGIN, name: text}))[title]


@pytest.mark.parametrize("change", ["changed", "unlisted", "absent"])
def test_record_must_agree_with_the_archive(tmp_path: Path, change: str) -> None:
    name, record = "torch_fl_abc/plugin.py", dict(PLUGIN)
    if change == "changed":
        record[name] = "another"
    elif change == "unlisted":
        del record[name]
    else:
        record[name := "torch_fl_abc/gone.py"] = ""
    assert name in _wrong(_write(tmp_path, PLUGIN, record))["RECORD"]


@pytest.mark.parametrize(
    ("needed", "rpath", "says"),
    [
        ("libtorch_cpu.so libc.so.6", "$ORIGIN/../torch/lib", ""),
        ("libtorch_cpu.so", "$ORIGIN", "needs libtorch_cpu.so of torch/lib"),
        ("libtorch_cpu.so", "$ORIGIN/../../torch/lib", "needs libtorch_cpu.so"),
        (
            "libc10.so",
            "/build/torch/lib:$ORIGIN/../torch/lib",
            "/build/torch/lib, which is a place",
        ),
        ("libtorch_fl_abc.so", "$ORIGIN", ""),
        ("libtorch_fl_abc.so", "$ORIGIN/../torch/lib", "needs libtorch_fl_abc.so"),
    ],
)
def test_a_library_must_look_where_the_others_will_be(
    tmp_path: Path, needed: str, rpath: str, says: str
) -> None:
    wheel = _write(tmp_path, {**PLUGIN, "torch_fl_abc/libtorch_fl_abc.so": ""})
    name = "torch_fl_abc/_C.so"
    found = " ".join(wheel_checks._search(wheel, name, needed.split(), rpath.split(":")))
    assert says in found
    assert bool(found) == bool(says)


def test_a_stand_in_is_a_whole_wheel(tmp_path: Path) -> None:
    wheel = Wheel(wheel_trials.stand_in(tmp_path, "torch-fl-abc", "0.1.0"))
    assert (wheel.name, wheel.version) == ("torch-fl-abc", "0.1.0")
    assert not list(wheel_checks.record(wheel, CONTEXT))


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("torch", False),
        ("torch-2.13.0+cpu.dist-info", False),
        ("torch_fl", True),
        ("torch_fl_entry.py", True),
        ("torch_fl_core-0.1.0.dist-info", True),
        ("_editable_skbc_torch_fl_core.py", True),
        ("distutils-precedence.pth", True),
    ],
)
def test_the_second_environment_gets_nothing_of_ours(name: str, ours: bool) -> None:
    assert second_environment._left_out(name) == ours


def test_every_project_is_found(tmp_path: Path) -> None:
    for folder in (".", "packages/torch-fl-core", "packages/torch-fl-abc"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "pyproject.toml").touch()
    (tmp_path / "packages" / "torch-fl-empty").mkdir()
    names = [path.name for path in wheel_build.projects(tmp_path)]
    assert names == [tmp_path.name, "torch-fl-abc", "torch-fl-core"]


def test_the_packages_share_one_licence() -> None:
    for folder in wheel_build.projects(ROOT):
        for name in ("LICENSE", "NOTICE"):
            assert (folder / name).read_bytes() == (ROOT / name).read_bytes(), folder
