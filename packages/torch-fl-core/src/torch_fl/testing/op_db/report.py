"""Owns: how results are counted, and the verdict.

Counted are entries of op_db on one side, samples that stock CPU carries out
on the other, and what makes a run fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .exclusions import Exclusion, excluded_keys, passing_exclusions
from .results import Header, UnitResult

REQUIRED_SAMPLE_RATE: Final = 0.995
"""Of the samples that stock CPU carries out; excluded ones are counted like all others.

A rate is required of whole runs only: a few chosen entries may all be excluded ones.
"""


@dataclass(frozen=True)
class Report:
    """The outcome of a run, of several merged ones, or of a part of one."""

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
    missing_units: int
    passing_exclusions: tuple[tuple[str, str], ...]
    whole: bool

    @classmethod
    def of(
        cls,
        units: Mapping[tuple[str, str], UnitResult],
        expected: set[tuple[str, str]],
        exclusions: list[Exclusion],
        *,
        whole: bool = True,
    ) -> Report:
        """Count ``units``; those of ``expected`` that are not among them are missing.

        ``whole`` says whether ``expected`` are all entries of op_db.
        """
        excluded = excluded_keys(exclusions)
        by_entry: dict[str, list[UnitResult]] = {}
        for unit in units.values():
            by_entry.setdefault(unit.op, []).append(unit)
        failed, only_excluded, passed, without = [], [], 0, 0
        for entry, results in by_entry.items():
            failures = [result for result in results if not result.ok]
            if any(result.key not in excluded for result in failures):
                failed.append(entry)
            elif failures:
                only_excluded.append(entry)
            elif any(result.counted for result in results):
                passed += 1
            else:
                without += 1
        everything = units.values()
        return cls(
            failed_entries=tuple(failed),
            excluded_entries=tuple(only_excluded),
            passed_entries=passed,
            entries_without_samples=without,
            samples=sum(unit.counted for unit in everything),
            samples_passed=sum(unit.passed for unit in everything),
            samples_inexact=sum(unit.inexact for unit in everything),
            samples_skipped=sum(unit.skipped for unit in everything),
            samples_accepted=sum(unit.accepted for unit in everything),
            missing_units=len(expected - units.keys()),
            passing_exclusions=tuple(passing_exclusions(exclusions, units)),
            whole=whole,
        )

    @property
    def sample_rate(self) -> float:
        """Passed samples among the counted ones; 0.0 if there were none."""
        return self.samples_passed / self.samples if self.samples else 0.0

    @property
    def ok(self) -> bool:
        """Nothing failed, enough samples passed, nothing is missing, no exclusion is stale."""
        return not self.objections()

    def objections(self) -> list[str]:
        """Why the run is no success; empty if it is."""
        objections = []
        if self.failed_entries:
            objections.append(f"{len(self.failed_entries)} entries differ from stock CPU")
        if not self.samples:
            objections.append("no sample was compared")
        elif self.whole and self.sample_rate < REQUIRED_SAMPLE_RATE:
            objections.append(
                f"{self.sample_rate:.3%} of the samples pass, {REQUIRED_SAMPLE_RATE:.1%} must"
            )
        if self.missing_units:
            objections.append(f"{self.missing_units} of the (entry, pass) pairs are missing")
        objections += [
            f"{op} passes in pass {pass_name}: remove its exclusion"
            for op, pass_name in self.passing_exclusions
        ]
        return objections

    def closing_lines(self, device: str) -> list[str]:
        """The summary; its last line starts with the entries passed and failed."""
        lines = [
            f"samples: {self.samples_passed} of {self.samples} passed, "
            f"{self.samples_inexact} of them within tolerance but not bit for bit",
            f"not counted: {self.samples_skipped} samples that stock CPU rejects, "
            f"{self.samples_accepted} of which {device} carries out",
        ]
        if self.excluded_entries:
            lines.append(f"excluded: {', '.join(self.excluded_entries)}")
        lines += [f"not ok: {objection}" for objection in self.objections()]
        lines.append(
            f"{self.passed_entries} passed, {len(self.failed_entries)} failed, "
            f"{len(self.excluded_entries)} excluded, "
            f"{self.entries_without_samples} without a sample on the CPU "
            f"({self.sample_rate:.3%} of {self.samples} samples)"
        )
        return lines


def expected_units(header: Header) -> set[tuple[str, str]]:
    """Every (entry, pass) of a whole run."""
    return {(entry, name) for entry in header.entries for name in header.passes}


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
    return f"{state} {unit.op} [{unit.pass_name}] {', '.join(parts)}, {unit.seconds:.2f} s"


def failure_lines(unit: UnitResult) -> list[str]:
    """The unit's recorded failures, one line each, and how many there are besides."""
    lines = [f"       {failure.case}: {failure.message}" for failure in unit.failures]
    more = unit.failed - len(unit.failures)
    return [*lines, f"       and {more} more"] if more > 0 else lines
