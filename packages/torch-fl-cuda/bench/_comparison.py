"""Owns: the statistics: ratios of medians over pairs of processes, and their bootstrap intervals.

Within a pair the two sides take turns, so what changes on the machine meets both; from pair to
pair the processes are new, so what a process happens to get (cores, addresses) varies too. The
bootstrap therefore draws pairs, and within each drawn pair its turns.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
Turn = tuple[float, float]
"""What both sides took in neighbouring turns: native, device."""

DRAWS = 2000
COVERAGE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A value and the interval that the bootstrap gives it."""

    value: float
    low: float
    high: float


def _draw(values: Sequence[T], rng: random.Random) -> list[T]:
    return rng.choices(values, k=len(values))


def bootstrap(
    statistic: Callable[[Sequence[T]], float],
    groups: Sequence[T],
    *,
    seed: int = 0,
    again: Callable[[T, random.Random], T] | None = None,
) -> Estimate:
    """`statistic` of the groups, with the interval of its values on groups drawn anew.

    Args:
        statistic: of any non-empty choice of groups.
        groups: what was observed, at least one.
        seed: of the draws; the same seed gives the same interval.
        again: draws anew within a group, where its own parts vary too.
    """
    if not groups:
        raise ValueError("there is nothing to compare: no pair has been measured")
    rng = random.Random(seed)
    found = []
    for _ in range(DRAWS):
        drawn = _draw(groups, rng)
        found.append(statistic([again(group, rng) for group in drawn] if again else drawn))
    found.sort()
    tail = (1 - COVERAGE) / 2
    low, high = (found[round(place * (len(found) - 1))] for place in (tail, 1 - tail))
    return Estimate(statistic(groups), low, high)


def native_by_device(turns: Sequence[Turn]) -> float:
    """Native time by the device's: above 1 where the device is faster, as throughputs compare."""
    native = statistics.median(native for native, _ in turns)
    return native / statistics.median(device for _, device in turns)


def throughput(pairs: Sequence[Sequence[Turn]], seed: int = 0) -> Estimate:
    """The device's throughput by native's: the median of the pairs, each a ratio of medians."""

    def middle(chosen: Sequence[Sequence[Turn]]) -> float:
        return statistics.median(native_by_device(turns) for turns in chosen)

    return bootstrap(middle, pairs, seed=seed, again=_draw)


def run_time(pairs: Sequence[Sequence[Turn]], seed: int = 0) -> Estimate:
    """The device's time by native's, as `throughput` the other way round."""

    def middle(chosen: Sequence[Sequence[Turn]]) -> float:
        return statistics.median(1 / native_by_device(turns) for turns in chosen)

    return bootstrap(middle, pairs, seed=seed, again=_draw)


def cost(pairs: Sequence[Turn], seed: int = 0) -> Estimate:
    """The device's cost by native's, of one number for each side of a pair, such as bytes."""

    def middle(chosen: Sequence[Turn]) -> float:
        return statistics.median(device / native for native, device in chosen)

    return bootstrap(middle, pairs, seed=seed)


def operators(runs: Sequence[dict[str, float]], seed: int = 0) -> dict[str, Estimate]:
    """Ratios of operators over several runs: of each, and `geometric mean` and `worst` of all.

    Each run maps an operator's name to its ratio; an operator's ratio is the median of the runs.
    """
    names = list(runs[0])

    def middle(chosen: Sequence[dict[str, float]], name: str) -> float:
        return statistics.median(run[name] for run in chosen)

    def mean(chosen: Sequence[dict[str, float]]) -> float:
        return statistics.geometric_mean([middle(chosen, name) for name in names])

    def worst(chosen: Sequence[dict[str, float]]) -> float:
        return max(middle(chosen, name) for name in names)

    found = {
        name: bootstrap(lambda chosen, name=name: middle(chosen, name), runs, seed=seed)  # type: ignore[misc]
        for name in names
    }
    found["geometric mean"] = bootstrap(mean, runs, seed=seed)
    found["worst"] = bootstrap(worst, runs, seed=seed)
    return found


def agreement(pairs: Sequence[tuple[Sequence[float], Sequence[float]]], tolerance: float) -> str:
    """Whether both sides computed the same: `bit for bit`, `close` or `different`.

    Each pair has the results of both sides. Values that are not finite are not close to anything.
    """
    values = [
        (native, device)
        for natives, devices in pairs
        for native, device in zip(natives, devices, strict=True)
    ]
    finite = all(math.isfinite(native) and math.isfinite(device) for native, device in values)
    if not values or not finite:
        return "different"
    if all(native == device for native, device in values):
        return "bit for bit"
    near = [
        abs(native - device) <= tolerance * max(abs(native), abs(device))
        for native, device in values
    ]
    return "close" if all(near) else "different"
