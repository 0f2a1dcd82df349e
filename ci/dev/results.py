"""Owns: counting what ran, and saying it: junit files, closing lines, the summary of a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

CLOSING = re.compile(r"\b(\d+) passed, (\d+) failed\b")
NOTHING_RAN = 5  # pytest's own status for "no tests collected"


@dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other: Counts) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    @property
    def executed(self) -> int:
        return self.passed + self.failed


@dataclass
class Result:
    """How one area went. `status` is an exit status; `notes` say what the counts cannot."""

    area: str
    budget: int
    minutes: float = 0.0
    counts: Counts = field(default_factory=Counts)
    status: int = 0
    notes: list[str] = field(default_factory=list)

    def fail(self, status: int, note: str) -> None:
        """Something failed that is no counted test: it counts as one, so that the closing line
        never says `0 failed` of a run that failed."""
        self.status = max(self.status, status, 1)
        self.notes.append(note)
        if self.counts.failed == 0:
            self.counts.failed = 1


def from_junit(path: Path) -> Counts | None:
    """Counts of a pytest run; None when pytest did not get as far as to write its report."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return None
    counts = Counts()
    for suite in root.iter("testsuite"):
        tests, failures, errors, skipped = (
            int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")
        )
        failed = failures + errors
        counts.add(Counts(max(tests - failed - skipped, 0), failed, skipped))
    return counts


def from_lines(lines: Iterable[str]) -> Counts | None:
    """Counts of the last closing line; None when there is none."""
    found = [match for line in lines if (match := CLOSING.search(line))]
    return Counts(int(found[-1][1]), int(found[-1][2])) if found else None


def total(results: Sequence[Result]) -> Counts:
    counts = Counts()
    for result in results:
        counts.add(result.counts)
    return counts


def worst(results: Sequence[Result]) -> int:
    """Exit status of a whole run: the highest, and never 0 for a run without a test."""
    status = max((result.status for result in results), default=0)
    return status or (0 if total(results).executed else NOTHING_RAN)


def table(results: Sequence[Result]) -> str:
    lines = [f"{'area':<10}{'minutes':>9}{'budget':>8}{'passed':>8}{'failed':>8}{'skipped':>9}"]
    for result in results:
        counts = result.counts
        late = "  over budget" if result.minutes > result.budget else ""
        lines.append(
            f"{result.area:<10}{result.minutes:>9.1f}{result.budget:>8}{counts.passed:>8}"
            f"{counts.failed:>8}{counts.skipped:>9}{late}"
        )
    return "\n".join(lines)


def summary(results: Sequence[Result]) -> str:
    """One line: each area with its minutes, those that failed or took too long marked."""
    parts = []
    for result in results:
        marks = ["failed"] if result.status else []
        marks += [f"budget {result.budget}"] if result.minutes > result.budget else []
        mark = f" ({', '.join(marks)})" if marks else ""
        parts.append(f"{result.area} {result.minutes:.1f} min{mark}")
    whole = sum(result.minutes for result in results)
    budget = sum(result.budget for result in results)
    return f"{', '.join(parts)}; together {whole:.1f} of {budget} min"


def closing_line(results: Sequence[Result]) -> str:
    counts = total(results)
    return f"{counts.passed} passed, {counts.failed} failed"
