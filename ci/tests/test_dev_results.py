"""Owns: the tests of how `./dev` runs programs and counts their results."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

import pytest

from ci.dev import process, results
from ci.dev.areas import AREAS
from ci.dev.cli import ROOT
from ci.dev.results import Counts, Result


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

        def gone() -> bool:
            try:
                return "Z" in (child / "stat").read_text().rpartition(")")[2]
            except (FileNotFoundError, ProcessLookupError):
                return True

        # The signal has been sent; the system may take a moment to carry it out.
        deadline = time.monotonic() + 10
        while not gone() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert gone()

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
