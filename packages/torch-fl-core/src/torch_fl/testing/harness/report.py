"""Owns: how results are counted, and the verdict.

Counted are entries of a suite on one side, samples that stock CPU carries out on the other, and
what makes a run fail.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from .exclusions import Exclusion, excluded, passing_exclusions
from .results import Header, Key, UnitResult

REQUIRED_SAMPLE_RATE: Final = 0.995
"""Of the samples that stock CPU carries out, in each suite and configuration; excluded ones are
counted like all others.

A rate is required of whole runs only: a few chosen entries may all be excluded ones.
"""


@dataclass(frozen=True)
class Part:
    """The outcome of one suite in one configuration."""

    configuration: str
    suite: str
    failed_entries: tuple[str, ...]
    excluded_entries: tuple[str, ...]
    """entries whose only failures are excluded ones"""
    passed_entries: int
    entries_without_samples: int
    samples: int
    samples_passed: int
    samples_inexact: int
    samples_skipped: int
    samples_accepted: int
    seconds: float

    @classmethod
    def of(
        cls,
        configuration: str,
        suite: str,
        units: Collection[UnitResult],
        exclusions: list[Exclusion],
    ) -> Part:
        """Count the units of that suite in that configuration."""
        by_entry: dict[str, list[UnitResult]] = {}
        for unit in units:
            by_entry.setdefault(unit.entry, []).append(unit)
        failed, only_excluded, passed, without = [], [], 0, 0
        for entry, results in by_entry.items():
            failures = [result for result in results if not result.ok]
            if any(excluded(exclusions, result.key) is None for result in failures):
                failed.append(entry)
            elif failures:
                only_excluded.append(entry)
            elif any(result.counted for result in results):
                passed += 1
            else:
                without += 1
        return cls(
            configuration=configuration,
            suite=suite,
            failed_entries=tuple(failed),
            excluded_entries=tuple(only_excluded),
            passed_entries=passed,
            entries_without_samples=without,
            samples=sum(unit.counted for unit in units),
            samples_passed=sum(unit.passed for unit in units),
            samples_inexact=sum(unit.inexact for unit in units),
            samples_skipped=sum(unit.skipped for unit in units),
            samples_accepted=sum(unit.accepted for unit in units),
            seconds=sum(unit.seconds for unit in units),
        )

    @property
    def title(self) -> str:
        """The suite and the configuration, as messages name them."""
        return f"{self.suite} ({self.configuration})"

    @property
    def sample_rate(self) -> float:
        """Passed samples among the counted ones; 0.0 if there were none."""
        return self.samples_passed / self.samples if self.samples else 0.0

    def objections(self, whole: bool) -> list[str]:
        """Why this part is no success; empty if it is."""
        objections = []
        if self.failed_entries:
            objections.append(
                f"{self.title}: {len(self.failed_entries)} entries differ from stock CPU"
            )
        if not self.samples:
            objections.append(f"{self.title}: no sample was compared")
        elif whole and self.sample_rate < REQUIRED_SAMPLE_RATE:
            objections.append(
                f"{self.title}: {self.sample_rate:.3%} of the samples pass, "
                f"{REQUIRED_SAMPLE_RATE:.1%} must"
            )
        return objections


@dataclass(frozen=True)
class Report:
    """The outcome of a run, of several merged ones, or of a part of one."""

    parts: tuple[Part, ...]
    missing_units: int
    passing_exclusions: tuple[UnitResult, ...]
    whole: bool

    @classmethod
    def of(
        cls,
        units: Mapping[Key, UnitResult],
        expected: Collection[Key],
        exclusions: list[Exclusion],
        *,
        whole: bool = True,
    ) -> Report:
        """Count ``units``; those of ``expected`` that are not among them are missing.

        ``whole`` says whether ``expected`` are all entries of the suites.
        """
        by_part: dict[tuple[str, str], list[UnitResult]] = {}
        for unit in units.values():
            by_part.setdefault((unit.configuration, unit.suite), []).append(unit)
        return cls(
            parts=tuple(Part.of(*names, found, exclusions) for names, found in by_part.items()),
            missing_units=len(set(expected) - units.keys()),
            passing_exclusions=tuple(passing_exclusions(exclusions, units)),
            whole=whole,
        )

    @property
    def ok(self) -> bool:
        """Nothing failed, enough samples passed, nothing is missing, no exclusion is stale."""
        return not self.objections()

    def objections(self) -> list[str]:
        """Why the run is no success; empty if it is."""
        objections = [text for part in self.parts for text in part.objections(self.whole)]
        if not self.parts:
            objections.append("no sample was compared")
        if self.missing_units:
            objections.append(f"{self.missing_units} of the (entry, pass) pairs are missing")
        objections += [
            f"{unit.suite} ({unit.configuration}): {unit.entry} passes in pass {unit.pass_name}: "
            "remove its exclusion"
            for unit in self.passing_exclusions
        ]
        return objections

    def closing_line(self) -> str:
        """One line that starts with the entries passed and failed, over all parts."""
        samples = sum(part.samples for part in self.parts)
        passed = sum(part.samples_passed for part in self.parts)
        rate = passed / samples if samples else 0.0
        return (
            f"{sum(part.passed_entries for part in self.parts)} passed, "
            f"{sum(len(part.failed_entries) for part in self.parts)} failed, "
            f"{sum(len(part.excluded_entries) for part in self.parts)} excluded, "
            f"{sum(part.entries_without_samples for part in self.parts)} without a sample on the "
            f"CPU ({rate:.3%} of {samples} samples)"
        )


TABLE_COLUMNS: Final = (
    "suite",
    "configuration",
    "passed",
    "failed",
    "excluded",
    "empty",
    "samples",
    "rate",
    "inexact",
    "CPU s",
)
"""Of `table_rows`. Entries first; ``empty`` are those without a sample on the CPU."""


def table_rows(report: Report) -> list[tuple[str, ...]]:
    """A row for each part."""
    return [
        (
            part.suite,
            part.configuration,
            str(part.passed_entries),
            str(len(part.failed_entries)),
            str(len(part.excluded_entries)),
            str(part.entries_without_samples),
            str(part.samples),
            f"{part.sample_rate:.3%}",
            str(part.samples_inexact),
            f"{part.seconds:.0f}",
        )
        for part in report.parts
    ]


def expected_units(header: Header) -> set[Key]:
    """Every (configuration, suite, entry, pass) of a whole run."""
    return {
        (configuration, suite, entry, name)
        for configuration, suites in header.passes.items()
        for suite, passes in suites.items()
        for entry in header.entries[suite]
        for name in passes
    }


def unit_line(unit: UnitResult) -> str:
    """One unit in one line, without its failures."""
    parts = [f"{unit.passed} passed"]
    for name in ("failed", "inexact", "skipped", "accepted"):
        count = getattr(unit, name)
        if count:
            parts.append(f"{count} {name}")
    if unit.inexact:
        parts.append(f"largest difference {unit.largest_difference:.3g}")
    state = "ok  " if unit.ok else "FAIL" if unit.status == "done" else unit.status
    where = f"{unit.suite} {unit.entry} [{unit.pass_name}, {unit.configuration}]"
    return f"{state} {where} {', '.join(parts)}, {unit.seconds:.2f} s"


def failure_lines(unit: UnitResult) -> list[str]:
    """The unit's recorded failures, one line each, and how many there are besides."""
    lines = [f"       {failure.case}: {failure.message}" for failure in unit.failures]
    more = unit.failed - len(unit.failures)
    return [*lines, f"       and {more} more"] if more > 0 else lines
