"""Owns: the method, two sides of one measurement timed in short interleaved slices.

A slice is a tight loop of some calls on one side; slices of both sides
alternate in random order, so that a change of clock frequency or a neighbour's load meets both
alike, and the difference is the median of the differences of neighbouring slices.
"""

from __future__ import annotations

import gc
import random
import statistics
import timeit
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

SLICE_SECONDS = 1e-3
"""A slice is long against the clock's resolution and short against a scheduler's time slice."""


@dataclass(frozen=True)
class Statement:
    """A Python statement and the objects that its names stand for."""

    source: str
    names: dict[str, Any]

    def timer(self) -> timeit.Timer:
        """A timer whose loop sees the names as local variables, the cheapest kind."""
        setup = "; ".join(f"{name} = given_{name}" for name in self.names) or "pass"
        values = {f"given_{name}": value for name, value in self.names.items()}
        return timeit.Timer(self.source, setup, globals=values)


class Side(Protocol):
    """Something that can run a slice."""

    def seconds_per_call(self, calls: int) -> float:
        """Run one slice of ``calls`` calls."""


class LocalSide:
    """A side in this process.

    Args:
        statement: what is called.
        synchronize: waits for the device; called around the slice, outside its time, so that a
            slice starts with an empty queue and its time is the host's alone.
    """

    def __init__(self, statement: Statement, synchronize: Callable[[], None]) -> None:
        self._timer = statement.timer()
        self._synchronize = synchronize

    def seconds_per_call(self, calls: int) -> float:
        """See `Side`."""
        self._synchronize()
        seconds = self._timer.timeit(calls) / calls
        self._synchronize()
        return seconds


@dataclass
class Comparison:
    """The slices of one case, pair by pair, in nanoseconds per call."""

    first: list[float] = field(default_factory=list)
    second: list[float] = field(default_factory=list)

    @property
    def first_ns(self) -> float:
        """Median of the first side."""
        return statistics.median(self.first)

    @property
    def second_ns(self) -> float:
        """Median of the second side."""
        return statistics.median(self.second)

    @property
    def difference_ns(self) -> float:
        """Median of the differences within the pairs."""
        return statistics.median(self._differences())

    @property
    def error_ns(self) -> float:
        """Standard error of `difference_ns`, from the median absolute deviation."""
        differences = self._differences()
        middle = statistics.median(differences)
        deviation = statistics.median(abs(value - middle) for value in differences)
        # 1.4826: from the deviation to sigma; 1.2533: from a mean's error to a median's.
        return float(1.2533 * 1.4826 * deviation / len(differences) ** 0.5)

    @property
    def ratio(self) -> float:
        """Median of the ratios within the pairs."""
        return statistics.median(b / a for a, b in zip(self.first, self.second, strict=True))

    def _differences(self) -> list[float]:
        return [b - a for a, b in zip(self.first, self.second, strict=True)]


def calls_per_slice(side: Side, most: int) -> int:
    """How many calls fill a slice; the call is warm afterwards."""
    side.seconds_per_call(min(most, 20))
    seconds = min(side.seconds_per_call(min(most, 20)) for _ in range(3))
    return max(1, min(most, round(SLICE_SECONDS / seconds)))


def add_pairs(
    comparison: Comparison, first: Side, second: Side, calls: int, pairs: int, rng: random.Random
) -> None:
    """Run ``pairs`` pairs of slices and add them to the comparison."""
    gc.collect()  # the loops run without the collector; what they left goes here
    for side in (first, second):
        side.seconds_per_call(calls)  # warm: the other case before this one filled the caches
    for _ in range(pairs):
        if rng.random() < 0.5:
            a = first.seconds_per_call(calls)
            b = second.seconds_per_call(calls)
        else:
            b = second.seconds_per_call(calls)
            a = first.seconds_per_call(calls)
        comparison.first.append(a * 1e9)
        comparison.second.append(b * 1e9)
