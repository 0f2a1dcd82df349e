"""Owns: what a run was asked for, and the time that it has."""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import _environment
import _sides
from _rows import Row, Size
from _sides import Side

AT_LEAST = "s_at_least"
"""In a row's record: seconds that a pair took which the end of a run cut off."""


class OutOfTimeError(RuntimeError):
    """The run's or the row's time is used up; what has been measured is kept."""


@dataclass(frozen=True)
class Plan:
    """One run. `deadline` is a time of `time.monotonic`.

    `pairs` is the number of pairs of processes that a row needs to be complete, where fewer are not
    enough for it.
    """

    native: Side
    device: Side
    pairs: int
    quick: bool
    deadline: float
    environment: Callable[[], dict[str, str]]
    """What the rows are measured on; finds out when it is asked for the first time."""
    wanted: int | None = None
    """Pairs after which a row's turn ends, though it is not complete; None: it has no turns."""

    def pairs_of(self, row: Row) -> int:
        """The number of pairs with which a row is complete."""
        return min(self.pairs, row.enough or self.pairs)

    def pairs_now(self, row: Row) -> int:
        """The number of pairs that a row may have when its turn ends."""
        most = self.pairs_of(row)
        return most if self.wanted is None else min(most, self.wanted)

    def size(self, row: Row) -> Size:
        """The row's size in this run."""
        return dict(row.quick if self.quick else row.size)

    def row_deadline(self, row: Row) -> float:
        """Until when the row may be measured, if it begins now."""
        return min(self.deadline, time.monotonic() + row.limit_s)


def plan_of(native: Side, device: Side, options: argparse.Namespace) -> Plan:
    """The plan of a command line with `--pairs`, `--quick` and `--budget`, whose time runs."""
    deadline = time.monotonic() + options.budget

    @functools.cache
    def environment() -> dict[str, str]:
        known = _sides.environment(native, device, deadline)
        return {**_environment.machine(native.target), **known}

    return Plan(native, device, options.pairs, options.quick, deadline, environment)


def left(deadline: float, needed_s: float = 0.0) -> float:
    """Seconds until the deadline. Raises OutOfTimeError if they are fewer than needed."""
    seconds = deadline - time.monotonic()
    if seconds <= needed_s:
        raise OutOfTimeError(f"{max(0.0, seconds):.0f} s are left, {needed_s:.0f} s are needed")
    return seconds
