"""Owns: a backend against the device that it stands on: their runs, case by case.

Both runs are against stock CPU and keep fingerprints. Counted is what passes natively: how much of
it passes on flagos, and how much is equal to the last bit. Where native runs differ among
themselves, nothing need be equal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .harness.report import REQUIRED_SAMPLE_RATE
from .harness.results import Header, ResultError, UnitResult, merge, read

PASSED: Final = "+"
FAILED: Final = "-"

_NAMED: Final = 20


@dataclass
class Score:
    """One suite. Cases are counted that pass natively in every native run."""

    native: int = 0
    passed: int = 0
    """of these, on flagos as well"""
    equal: int = 0
    """of these, with the fingerprint of a native run"""
    varying: int = 0
    """of these, with different fingerprints in native runs"""
    failed: list[str] = field(default_factory=list)
    unequal: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the goal is met and what does not vary natively is equal."""
        return self.passed >= REQUIRED_SAMPLE_RATE * self.native and not self.unequal


def compare(device: Sequence[Path], native: Sequence[Path]) -> dict[str, Score]:
    """The scores by suite.

    Args:
        device: files of one run of the backend, merged.
        native: a file each of runs of the target itself, at least one.

    Raises:
        ResultError: they do not belong together, or were made without fingerprints.
    """
    header, units = merge(list(device))
    others = [read(path) for path in native]
    _check(header, [found for found, _ in others])
    scores: dict[str, Score] = defaultdict(Score)
    for key, unit in units.items():
        natives = [found.get(key) for _, found in others]
        if all(natives):
            _count(scores[unit.suite], unit, [each for each in natives if each])
    if not scores:
        raise ResultError("the runs have no unit in common")
    return dict(scores)


def _check(header: Header, natives: Sequence[Header]) -> None:
    for found in (header, *natives):
        if not found.fingerprints:
            raise ResultError(f"the run on {found.device} kept none: it needs --fingerprints")
        for name in ("torch", "seed", "tier", "machine"):
            if getattr(found, name) != getattr(header, name):
                raise ResultError(
                    f"runs of one {name} are compared, not of {getattr(header, name)!r} and "
                    f"{getattr(found, name)!r}"
                )


def _count(score: Score, unit: UnitResult, natives: Sequence[UnitResult]) -> None:
    first = natives[0].fingerprints
    for case in first:
        marks = [each.fingerprints.get(case, FAILED) for each in natives]
        if not all(each.startswith(PASSED) for each in marks):
            continue
        score.native += 1
        mark = unit.fingerprints.get(case, FAILED)
        name = f"{unit.entry} {unit.pass_name} {case}"
        if not mark.startswith(PASSED):
            score.failed.append(name)
            continue
        score.passed += 1
        if mark in marks:
            score.equal += 1
        elif len(set(marks)) > 1:
            score.varying += 1
        else:
            score.unequal.append(name)


def lines(scores: Mapping[str, Score]) -> list[str]:
    """The table and the first cases that failed or differ, as text."""
    text = [f"{'suite':<16}{'native':>9}{'passed':>9}{'equal':>9}{'varying':>9}  state"]
    for suite, score in scores.items():
        state = "ok" if score.ok else "NOT OK"
        text.append(
            f"{suite:<16}{score.native:>9}{score.passed:>9}{score.equal:>9}{score.varying:>9}  "
            f"{state}"
        )
    for suite, score in scores.items():
        for kind, names in (("failed", score.failed), ("not equal", score.unequal)):
            text += [f"{suite}: {kind}: {name}" for name in names[:_NAMED]]
            if len(names) > _NAMED:
                text.append(f"{suite}: {kind}: {len(names) - _NAMED} more")
    return text
