"""Owns: the tests of what `./dev` asks of a machine before it starts: memory, cores, tools."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ci.dev import checks, machine
from ci.dev.errors import UserError
from ci.dev.layout import Environment, Layout

GIB = machine.GIB


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
