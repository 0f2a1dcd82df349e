"""Owns: the tests of `./dev` as its user sees it: what it runs, prints and returns.

They run it in a copy of the repository whose Python environment is a stand-in (conftest.py).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ci.dev import areas
from ci.dev.cli import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Copy


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_first_run_prepares_everything_and_becomes_the_demo(copy: Copy) -> None:
    done = copy.dev("run", "--", "--epochs", "2")
    assert done.returncode == 3, done.stderr  # the demo's own exit code
    assert done.stdout.splitlines()[-1] == "demo demo --epochs 2"
    announced, _, _ = done.stdout.partition("dev: together about")
    assert "torch" in announced
    assert "compile" in announced
    assert "about" in announced
    installs = copy.calls("install")
    assert len(installs) == 2
    assert "torch" in installs[0]
    assert str(copy.root / "constraints" / "torch-2.13.txt") in installs[0]
    assert installs[1][-4:] == ["--no-build-isolation", "--no-deps", "--editable", str(copy.core)]


def test_second_start_runs_no_pip_and_is_quick(copy: Copy) -> None:
    copy.dev("run")
    before = len(copy.calls("install"))
    start = time.monotonic()
    done = copy.dev("run")
    assert time.monotonic() - start < 5
    assert len(copy.calls("install")) == before
    assert "what will be done" not in done.stdout


def test_changed_sources_are_compiled_without_installing_packages(copy: Copy) -> None:
    copy.dev("run")
    (copy.core / "csrc" / "device" / "guard.cpp").write_text("changed")
    copy.dev("run")
    assert len(copy.calls("--editable")) == 2
    assert len(copy.calls("numpy")) == 1


def test_another_constraint_installs_again_but_builds_only_for_another_torch(copy: Copy) -> None:
    copy.dev("run")
    with (copy.root / "constraints" / "torch-2.13.txt").open("a") as file:
        file.write("numpy<3\n")
    copy.dev("run")
    assert len(copy.calls("install")) == 3
    assert len(copy.calls("--editable")) == 1


def test_a_deleted_package_is_brought_back(copy: Copy) -> None:
    copy.dev("run")
    site = copy.root / ".venv" / "lib" / "python3.11" / "site-packages"
    for file in (site / "numpy-1.0.dist-info").iterdir():
        file.unlink()
    (site / "numpy-1.0.dist-info").rmdir()
    copy.dev("run")
    assert len(copy.calls("numpy")) == 2


def test_failed_pip_says_so_and_is_tried_again(copy: Copy) -> None:
    copy.plan(pip="no matching distribution")
    done = copy.dev("run")
    assert done.returncode == 1
    assert "no matching distribution" in done.stderr
    assert "./dev run" in done.stderr
    copy.plan()
    assert copy.dev("run").returncode == 3


def test_test_runs_the_areas_and_ends_in_the_sum(copy: Copy) -> None:
    done = copy.dev("test", "--time-report")
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1] == "132 passed, 0 failed"
    for area in ("build", "unit", "wheels", "opdb", "compile"):
        assert f"\n{area} " in done.stdout
    runs = copy.test_runs()
    packages = [f"packages/torch-fl-{name}" for name in ("core/tests", "cuda/tests")]
    parts = [f"{packages[0]}/{name}" for name in ("plugins", "cli", "compile")]
    folders = ["ci/tests", *packages, *parts]
    assert [run[-1] for run in runs] == folders
    assert f"not slow and {areas.UNIT}" in runs[1]
    assert copy.calls("torch_fl.testing")[0][-4:] == ["--tier", "ci", "--workers", "2"]
    assert "compiled" in copy.calls("torch_fl.testing")[1]
    assert copy.calls("wheels")[-1][-2:] == [str(copy.root / "dev"), "wheels"]


def test_full_adds_the_slow_tests_and_the_whole_database(copy: Copy) -> None:
    copy.dev("test", "--full")
    assert any(f"slow and {areas.UNIT}" in run for run in copy.test_runs())
    assert "full" in copy.calls("torch_fl.testing")[0]


def test_a_failing_area_does_not_stop_the_next(copy: Copy) -> None:
    copy.plan(pytest=[5, 1])
    done = copy.dev("test")
    assert done.returncode == 1
    assert copy.calls("torch_fl.testing")
    assert "to run it again: ./dev test --area unit" in done.stdout
    assert done.stdout.splitlines()[-1] == "150 passed, 6 failed"


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("3 passed, 2 failed", "3 passed, 2 failed"),  # with exit status 0
        ("no line", "0 passed, 1 failed"),
        ("0 passed, 0 failed", "0 passed, 0 failed"),
    ],
)
def test_an_area_without_good_counts_fails(copy: Copy, text: str, last: str) -> None:
    copy.plan(module=text)
    done = copy.dev("test", "--area", "opdb")
    assert done.returncode != 0
    assert done.stdout.splitlines()[-1] == last


def test_a_missing_folder_is_named_and_fails(copy: Copy) -> None:
    shutil.rmtree(copy.core / "tests")
    done = copy.dev("test", "--area", "unit")
    assert done.returncode == 1
    assert "there is no packages/torch-fl-core/tests" in done.stdout
    assert done.stdout.splitlines()[-1] == "4 passed, 1 failed"


def test_a_build_that_fails_is_a_failed_test_run(copy: Copy) -> None:
    copy.plan(pip="expected ';'")
    done = copy.dev("test")
    assert done.returncode == 1
    assert not copy.test_runs()
    assert done.stdout.splitlines()[-1] == "0 passed, 1 failed"


def test_no_executed_test_is_a_failure(copy: Copy) -> None:
    copy.plan(pytest=[0, 0])
    done = copy.dev("test", "--", "-k", "nothing")
    assert done.returncode != 0


def test_named_tests_run_alone_whatever_their_markers(copy: Copy) -> None:
    words = ("test", "--", "tests/test_core.py::test_slow", "-x")
    done = copy.dev(*words, cwd=copy.core)
    assert done.returncode == 0, done.stdout
    (run,) = copy.test_runs()
    assert run[-2:] == ["-x", f"{copy.core / 'tests' / 'test_core.py'}::test_slow"]
    assert "not slow and not opdb and not compile" not in run
    assert not copy.calls("torch_fl.testing")


@pytest.mark.parametrize("words", [("test", "--area", "nope"), ("lint", "--part", "nope")])
def test_unknown_names_list_the_known_ones(copy: Copy, words: tuple[str, ...]) -> None:
    done = copy.dev(*words)
    assert done.returncode == 2
    assert "nope. The" in done.stderr


def test_bench_runs_scripts_by_name_in_the_users_folder(copy: Copy) -> None:
    assert copy.dev("bench").stdout == "dispatch\n"
    copy.dev("bench", "dispatch", "--json", "x.json")
    assert copy.calls("--json")[0] == [
        str(copy.core / "bench" / "dispatch.py"),
        "--json",
        "x.json",
    ]
    done = copy.dev("bench", "nope")
    assert done.returncode == 2
    assert "dispatch" in done.stderr


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"CXX": "no-such-compiler"}, "CXX=no-such-compiler"),
        ({"PATH": "/nonexistent"}, "apt install g++"),
        ({"MAX_JOBS": "many"}, "MAX_JOBS=many"),
    ],
)
def test_errors_before_any_work(copy: Copy, variables: dict[str, str], says: str) -> None:
    done = copy.dev("run", **variables)
    assert done.returncode == 2
    assert says in done.stderr
    assert not copy.calls("install")


def test_no_venv_needs_an_installed_torch(copy: Copy) -> None:
    done = copy.dev("run", "--no-venv")
    assert done.returncode == 2
    assert "--torch=installed" in done.stderr


def test_sigterm_ends_the_children_too(copy: Copy) -> None:
    copy.plan(hang=True)
    running = subprocess.Popen(
        [sys.executable, str(copy.root / "dev"), "run"],
        env={**os.environ, "MAX_JOBS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    pid_file = copy.root / ".venv" / "bin" / "grandchild"
    wait_until(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"))
    running.send_signal(signal.SIGTERM)
    assert running.wait(20) == 130
    grandchild = Path("/proc", pid_file.read_text().strip())
    wait_until(lambda: not grandchild.exists())


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_has_examples(copy: Copy, command: str) -> None:
    done = copy.dev(*filter(None, [command]), "--help")
    assert done.returncode == 0
    assert "examples:" in done.stdout
