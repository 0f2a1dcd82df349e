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
from .harness.results import Header, Key, ResultError, UnitResult, merge, read

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
    lost: list[str] = field(default_factory=list)
    """entries and passes that a native run did not come to the end of: their cases count only as
    far as every native run has them"""

    @property
    def ok(self) -> bool:
        """Whether something was compared, the goal is met, and what does not vary natively is
        equal."""
        met = self.passed >= REQUIRED_SAMPLE_RATE * self.native
        return bool(self.native) and met and not self.unequal


@dataclass(frozen=True)
class Runs:
    """A run of the backend, and runs of the device that it stands on."""

    header: Header
    units: Mapping[Key, UnitResult]
    natives: Sequence[tuple[Header, Mapping[Key, UnitResult]]]

    @property
    def native_headers(self) -> list[Header]:
        """Those of the native runs alone."""
        return [header for header, _ in self.natives]


def load(device: Sequence[Path], native: Sequence[Path]) -> Runs:
    """What is to be compared.

    Args:
        device: files of one run of the backend, merged.
        native: a file each of runs of the target itself, at least one.

    Raises:
        ResultError: they do not belong together, or were made without fingerprints.
    """
    header, units = merge(list(device))
    runs = Runs(header, units, [read(path) for path in native])
    _check(header, runs.native_headers)
    return runs


def compare(runs: Runs) -> dict[str, Score]:
    """The scores by suite. Raises ResultError where the runs have nothing in common."""
    scores: dict[str, Score] = defaultdict(Score)
    for key, unit in runs.units.items():
        natives = [found.get(key) for _, found in runs.natives]
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
        names = (header.device_name, found.device_name)
        if all(names) and len(set(names)) > 1:
            raise ResultError(f"the runs are of unlike devices, {' and '.join(names)}")


def _count(score: Score, unit: UnitResult, natives: Sequence[UnitResult]) -> None:
    ends = sorted({_cut_by(each) for each in natives} - {""})
    if ends:
        score.lost.append(f"{unit.entry} {unit.pass_name}: {', '.join(ends)}")
    for case in natives[0].fingerprints:
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


def _cut_by(unit: UnitResult) -> str:
    """What ended a unit before all of its cases; empty where nothing did."""
    if unit.status != "done":
        return unit.status
    return "device lost" if unit.device_lost else ""


def lines(scores: Mapping[str, Score]) -> list[str]:
    """The table and the first cases that failed or differ, as text."""
    columns = ("native", "passed", "equal", "varying", "lost")
    text = [f"{'suite':<16}{''.join(f'{name:>9}' for name in columns)}  state"]
    for suite, score in scores.items():
        state = "ok" if score.ok else "NOT OK"
        text.append(
            f"{suite:<16}{score.native:>9}{score.passed:>9}{score.equal:>9}{score.varying:>9}"
            f"{len(score.lost):>9}  {state}"
        )
    for suite, score in scores.items():
        for kind, names in (
            ("failed", score.failed),
            ("not equal", score.unequal),
            ("lost natively", score.lost),
        ):
            text += [f"{suite}: {kind}: {name}" for name in names[:_NAMED]]
            if len(names) > _NAMED:
                text.append(f"{suite}: {kind}: {len(names) - _NAMED} more")
    return text
