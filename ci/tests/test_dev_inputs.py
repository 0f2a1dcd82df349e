"""Owns: the tests of what `./dev` remembers, and of what makes its steps due."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ci.dev import bootstrap, build, lock, packages, state, virtualenv
from ci.dev.cli import ROOT
from ci.dev.layout import Environment, Layout


class TestState:
    def test_survives_and_forgets(self, tmp_path: Path) -> None:
        path = tmp_path / "deep" / "state.json"
        remembered = state.State(path)
        remembered.record("core", "a", 3.0)
        again = state.State(path)
        assert again.is_done("core", "a")
        assert not again.is_done("core", "b")
        again.forget("core")
        assert not state.State(path).is_done("core", "a")
        assert state.State(path).seconds("core") == 3.0

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"steps": 3}', "\x00"])
    def test_a_damaged_file_means_nothing_is_done(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "state.json"
        path.write_text(text)
        assert not state.State(path).is_done("core", "a")

    def test_fingerprint_sees_names_contents_and_absence(self, tmp_path: Path) -> None:
        file, other = tmp_path / "a", tmp_path / "b"
        file.write_text("x")
        prints = [state.fingerprint([], [file]), state.fingerprint(["v"], [file])]
        other.write_text("x")
        prints.append(state.fingerprint([], [other]))
        file.write_text("y")
        prints.append(state.fingerprint([], [file]))
        file.unlink()
        prints.append(state.fingerprint([], [file]))
        assert len(set(prints)) == len(prints)


def test_lock_makes_the_second_wait_and_names_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, events = tmp_path / "build" / "lock", []

    def second() -> None:
        with lock.exclusive(path):
            events.append("second")

    with lock.exclusive(path):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.2)
        events.append("first")
    thread.join(10)
    assert events == ["first", "second"]
    assert f"process {os.getpid()}" in capsys.readouterr().out


class TestPackages:
    def site(self, environment: Environment) -> Path:
        site = environment.layout.root / ".venv" / "lib" / "python3.11" / "site-packages"
        site.mkdir(parents=True)
        return site

    def test_missing_compares_normal_names(self, environment: Environment) -> None:
        site = self.site(environment)
        for name in ("scikit_build_core-1.1.2", "PyYAML-6.0.4"):
            (site / f"{name}.dist-info").mkdir()
        asked = ("scikit-build-core", "pyyaml", "numpy")
        assert packages.missing(environment, asked) == ["numpy"]

    def test_half_installed_distributions_are_forgotten(self, environment: Environment) -> None:
        site = self.site(environment)
        for name, complete in (("good-1.0", True), ("bad-2.0", False)):
            (site / f"{name}.dist-info").mkdir()
            if complete:
                (site / f"{name}.dist-info" / "INSTALLER").write_text("pip\n")
        (site / "~orch").mkdir()
        (site / "~orch.py").touch()
        assert packages.drop_unfinished(environment) == ["bad-2.0"]
        assert [path.name for path in site.iterdir()] == ["good-1.0.dist-info"]

    def test_every_package_has_a_constraint(self) -> None:
        def names(path: str) -> set[str]:
            text = (ROOT / "constraints" / path).read_text(encoding="utf-8")
            found = re.findall(r"^([A-Za-z0-9._-]+)\s*[=<>]", text, re.M)
            return {name.lower() for name in found}

        assert {name.lower() for name in packages.LINT} == names("lint.txt")
        wanted = {*packages.base(Environment(Layout(ROOT))), *packages.TEST, *packages.WHEELS}
        assert wanted == names("torch-2.13.txt")

    def test_the_cores_own_requirements_are_installed(self) -> None:
        tomllib = pytest.importorskip("tomllib")  # Python 3.11
        core = tomllib.loads((Layout(ROOT).core / "pyproject.toml").read_text(encoding="utf-8"))
        asked = [*core["build-system"]["requires"], *core["project"].get("dependencies", [])]
        names = {re.split(r"[^A-Za-z0-9._-]", text, maxsplit=1)[0].lower() for text in asked}
        names = {name.replace("_", "-") for name in names}
        assert names <= set(packages.base(Environment(Layout(ROOT))))


class TestBuildInputs:
    @pytest.mark.parametrize(
        ("path", "due"),
        [
            ("csrc/device/guard.cpp", True),
            ("include/flagos/runtime.h", True),
            ("cmake/operators.cmake", True),
            ("pyproject.toml", True),
            ("CMakeLists.txt", True),
            ("src/torch_fl/new_module.py", True),  # an editable install knows its files by a table
            ("src/torch_fl/__init__.py", False),
            ("src/torch_fl/__pycache__/new.pyc", False),
            ("tests/test_core.py", False),
        ],
    )
    def test_files(self, environment: Environment, path: str, due: bool) -> None:
        core = environment.layout.core
        for name in ("csrc/device/guard.cpp", "src/torch_fl/__init__.py"):
            (core / name).parent.mkdir(parents=True)
            (core / name).write_text("int a;")
        before = build.inputs(environment)
        (core / path).parent.mkdir(parents=True, exist_ok=True)
        (core / path).write_text("changed")
        assert (build.inputs(environment) != before) is due

    def test_settings_and_torch(
        self, environment: Environment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen = {build.inputs(environment)}
        monkeypatch.setenv("CXX", "clang++")
        seen.add(build.inputs(environment))
        torch = environment.layout.root / ".venv/lib/python3.11/site-packages/torch/version.py"
        torch.parent.mkdir(parents=True)
        for version in ("2.13.0", "2.13.0+cpu"):
            torch.write_text(f"__version__ = '{version}'")
            seen.add(build.inputs(environment))
        assert len(seen) == 4


def test_build_folders_do_not_mix_torches(tmp_path: Path) -> None:
    (tmp_path / "version.py").write_text("__version__ = '2.12.1+vendor'")
    pinned = Environment(Layout(tmp_path))
    other = Environment(Layout(tmp_path), "installed", tmp_path / "__init__.py")
    assert build.build_folder(pinned) == "build/{wheel_tag}"
    assert build.build_folder(other) == "build/installed-torch-2.12.1+vendor-{wheel_tag}"


class TestBootstrap:
    def test_an_interrupted_step_is_done_again(
        self, environment: Environment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls = []

        def work() -> None:
            calls.append("core")
            if len(calls) == 1:
                raise KeyboardInterrupt

        step = bootstrap.Step("core", "compile", lambda: 1.0, lambda: "inputs", lambda: True, work)
        monkeypatch.setattr(bootstrap, "steps", lambda environment: {"core": step})
        monkeypatch.setattr(bootstrap, "_check", lambda environment, due: None)
        monkeypatch.setitem(bootstrap.LEVELS, "run", ("core",))
        with pytest.raises(KeyboardInterrupt):
            bootstrap.prepare(environment, "run")
        bootstrap.prepare(environment, "run")
        bootstrap.prepare(environment, "run")
        assert calls == ["core", "core"]

    @pytest.mark.slow
    @pytest.mark.parametrize("leave", ["no pip", "no interpreter"])
    def test_a_half_made_environment_is_completed(
        self, environment: Environment, leave: str
    ) -> None:
        folder = environment.folder
        assert folder
        made = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
        subprocess.run(made, check=True)
        if leave == "no interpreter":
            environment.python.unlink()
            environment.python.symlink_to("/nonexistent/python3")
        virtualenv.make(environment)
        assert virtualenv.starts(environment)


def test_variables_keep_other_torches_and_targets_out(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("PIP_TARGET", "/elsewhere")
    values = environment.variables(MORE="1")
    assert "PYTHONPATH" not in values
    assert "PIP_TARGET" not in values
    assert values["MORE"] == "1"
    assert values["PATH"].startswith(str(environment.layout.root / ".venv" / "bin") + os.pathsep)
    kept = Environment(environment.layout, "installed").variables()
    assert kept["PYTHONPATH"] == "/elsewhere"
