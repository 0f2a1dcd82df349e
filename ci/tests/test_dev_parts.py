"""Owns: the tests of the parts of `./dev` that its user only meets in bad times."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ci.dev import bootstrap, build, checks, lock, machine, packages, process, results, state
from ci.dev.areas import AREAS
from ci.dev.cli import ROOT
from ci.dev.errors import UserError
from ci.dev.layout import Environment, Layout
from ci.dev.results import Counts, Result

GIB = machine.GIB


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(Layout(tmp_path))


class TestMachine:
    def proc(self, folder: Path, gib: float) -> Path:
        (folder / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {int(gib * 2**20)} kB\n")
        return folder

    def test_memory_is_what_the_kernel_calls_available(self, tmp_path: Path) -> None:
        assert machine.available_memory(self.proc(tmp_path, 3), tmp_path / "none") == 3 * GIB

    def test_a_container_limit_counts_without_its_page_cache(self, tmp_path: Path) -> None:
        (tmp_path / "memory.max").write_text(f"{4 * GIB}\n")
        (tmp_path / "memory.current").write_text(f"{3 * GIB}\n")
        (tmp_path / "memory.stat").write_text(f"anon 5\ninactive_file {GIB}\n")
        assert machine.available_memory(self.proc(tmp_path, 60), tmp_path) == 2 * GIB
        (tmp_path / "memory.max").write_text("max\n")
        assert machine.available_memory(self.proc(tmp_path, 60), tmp_path) == 60 * GIB

    def test_an_older_container_limit_counts_too(self, tmp_path: Path) -> None:
        (tmp_path / "memory").mkdir()
        (tmp_path / "memory" / "memory.limit_in_bytes").write_text(f"{2 * GIB}")
        (tmp_path / "memory" / "memory.usage_in_bytes").write_text(f"{GIB}")
        assert machine.available_memory(self.proc(tmp_path, 60), tmp_path) == GIB

    def test_cores_follow_a_container_quota(self, tmp_path: Path) -> None:
        (tmp_path / "cpu.max").write_text("100000 100000\n")
        assert machine.cores(tmp_path) == 1
        (tmp_path / "cpu.max").write_text("max 100000\n")
        assert machine.cores(tmp_path) == len(os.sched_getaffinity(0))

    @pytest.mark.parametrize(
        ("gib", "cores", "jobs"), [(1.6, 8, 1), (2.5, 8, 2), (60, 4, 4), (900, 128, 16)]
    )
    def test_jobs_fit_memory_and_cores(
        self, monkeypatch: pytest.MonkeyPatch, gib: float, cores: int, jobs: int
    ) -> None:
        for name in ("MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(machine, "available_memory", lambda: int(gib * GIB))
        monkeypatch.setattr(machine, "cores", lambda: cores)
        assert machine.build_jobs() == jobs

    def test_too_little_memory_is_refused_unless_the_user_insists(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("CMAKE_BUILD_PARALLEL_LEVEL", raising=False)
        monkeypatch.delenv("MAX_JOBS", raising=False)
        monkeypatch.setattr(machine, "available_memory", lambda: GIB)
        with pytest.raises(UserError, match=r"1\.0 GiB are available .* needs 1\.5 GiB"):
            machine.build_jobs()
        monkeypatch.setenv("MAX_JOBS", "1")
        assert machine.build_jobs() == 1


class TestChecks:
    def test_missing_ensurepip_has_the_debian_hint(self, monkeypatch: pytest.MonkeyPatch) -> None:
        checks.check_venv_module()
        monkeypatch.setattr(checks, "_has_module", lambda name: name != "ensurepip")
        with pytest.raises(UserError, match=r"no ensurepip module.*apt install python3-venv"):
            checks.check_venv_module()

    def test_missing_headers(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
        with pytest.raises(UserError, match="apt install python3-dev"):
            checks.check_python_headers()

    def test_an_old_compiler_is_quoted(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        old = tmp_path / "g++-8"
        old.write_text("#!/bin/sh\necho 'error: unknown option -std=c++20' >&2\nexit 1\n")
        old.chmod(0o755)
        monkeypatch.setenv("CXX", str(old))
        with pytest.raises(UserError, match=r"unknown option -std=c\+\+20"):
            checks.check_compiler()

    def test_only_the_pinned_torch_limits_python(self, environment: Environment) -> None:
        checks.check_python(environment, checks.NEWEST_PYTHON)
        with pytest.raises(UserError, match="newer than the pinned torch"):
            checks.check_python(environment, (3, 99))
        checks.check_python(Environment(environment.layout, "installed"), (3, 99))

    def test_other_systems_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "platform", "win32")
        with pytest.raises(UserError, match="WSL"):
            checks.check_platform()

    @pytest.mark.parametrize(
        ("version", "supported"),
        [
            ("2.11.0", True),
            ("2.13.1+vendor", True),
            ("3.0a0", True),
            ("2.10.2", False),
            ("", False),
        ],
    )
    def test_installed_torch(self, tmp_path: Path, version: str, supported: bool) -> None:
        (tmp_path / "version.py").write_text(f"from x import y\n__version__ = '{version}'\n")
        environment = Environment(Layout(tmp_path), "installed", tmp_path / "__init__.py")
        if supported:
            checks.check_installed_torch(environment)
        else:
            with pytest.raises(UserError, match=r"needs 2\.11 or newer"):
                checks.check_installed_torch(environment)


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
        wanted = {*packages.base(Environment(Layout(ROOT))), *packages.TEST}
        assert wanted == names("torch-2.13.txt")

    def test_the_cores_own_requirements_are_installed(self) -> None:
        tomllib = pytest.importorskip("tomllib")  # Python 3.11
        core = tomllib.loads((Layout(ROOT).core / "pyproject.toml").read_text(encoding="utf-8"))
        asked = [*core["build-system"]["requires"], *core["project"].get("dependencies", [])]
        names = {re.split(r"[^A-Za-z0-9._-]", text, maxsplit=1)[0].lower() for text in asked}
        names = {name.replace("_", "-") for name in names}
        assert names <= set(packages.base(Environment(Layout(ROOT))))


class TestProcess:
    def test_status_of_an_end_by_signal_is_a_shells(self, tmp_path: Path) -> None:
        status = process.run(["sh", "-c", "kill -9 $$"], env=os.environ, cwd=tmp_path)
        assert status == 128 + 9

    @pytest.mark.parametrize("listen", [False, True])
    def test_the_limit_ends_grandchildren_too(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listen: bool
    ) -> None:
        monkeypatch.setattr(process, "PATIENCE", 0.2)
        lines: list[str] = []
        script = "sleep 60 & echo $! > child; trap '' INT; wait"
        start = time.monotonic()
        status = process.run(
            ["sh", "-c", script],
            env=os.environ,
            cwd=tmp_path,
            limit=0.5,
            on_line=lines.append if listen else None,
        )
        assert status == process.TIMED_OUT
        assert time.monotonic() - start < 20
        child = Path("/proc", (tmp_path / "child").read_text().strip())
        assert not child.exists() or "Z" in (child / "status").read_text()

    def test_progress_in_ci_overwrites_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("CI", "true")
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setattr(process, "QUIET_SECONDS", 0.0)
        script = "echo '[1/2] Building a.o'; echo noise; echo '[2/2] Linking b'"
        log = tmp_path / "logs" / "log"
        assert process.run_logged(
            ["sh", "-c", script], env=os.environ, cwd=tmp_path, log=log, title="compiling"
        ) in (0,)
        said = capsys.readouterr().out
        assert "compiling: [2/2]" in said
        assert "\r" not in said
        assert "noise" in log.read_text()

    def test_extract_prefers_errors(self, tmp_path: Path) -> None:
        log = tmp_path / "log"
        log.write_text("a\nx.cpp:3:4: error: expected ';'\nwarnings\n")
        assert process.log_extract(log) == "  | x.cpp:3:4: error: expected ';'"
        log.write_text("\n".join(map(str, range(100))))
        assert process.log_extract(log, 2) == "  | 98\n  | 99"


class TestResults:
    def test_junit(self, tmp_path: Path) -> None:
        report = tmp_path / "report.xml"
        suite = '<testsuite tests="10" failures="2" errors="1" skipped="3"/>'
        report.write_text(f"<testsuites>{suite}{suite}</testsuites>")
        assert results.from_junit(report) == Counts(8, 6, 6)
        report.write_text("<testsu")
        assert results.from_junit(report) is None
        assert results.from_junit(tmp_path / "none") is None

    def test_the_last_closing_line_counts(self) -> None:
        lines = ["1 passed, 2 failed", "noise", "op_db: 687 passed, 0 failed (3 excluded)", ""]
        assert results.from_lines(lines) == Counts(687, 0)
        assert results.from_lines(["1 passed in 3 s"]) is None

    def test_worst_status_and_the_line_agree(self) -> None:
        good, bad = Result("a", 1, counts=Counts(3)), Result("b", 1)
        assert results.worst([good]) == 0
        bad.fail(139, "crashed")
        bad.fail(1, "and more")
        assert results.worst([good, bad]) == 139
        assert results.closing_line([good, bad]) == "3 passed, 1 failed"
        assert results.worst([Result("build", 6)]) != 0

    def test_time_over_budget_is_told(self) -> None:
        late = Result("unit", 8, minutes=9.5)
        assert "over budget" in results.table([late])
        assert "budget 8" in results.summary([late])


def test_areas_are_consistent() -> None:
    names = [area.name for area in AREAS]
    assert names[0] == "build"
    assert len(set(names)) == len(names)
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for command in (command for area in AREAS for command in (*area.commands, *area.full)):
        for word in set(re.findall(r"\w+", command.marker)) - {"not", "and", "or"}:
            assert f'"{word}: ' in text


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
        bootstrap.make_environment(environment)
        assert bootstrap.starts(environment)


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
