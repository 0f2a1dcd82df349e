"""Owns: the rows of steps, whose two sides take turns: native, and on the device.

    ./dev bench training [--only ROW ...]

They are rows of `./dev bench cuda`; this runs only them. Each pair of sides has new processes,
or one for both. Rows may be built at the same time, `together`; they are measured one at a time,
while nothing else runs.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import _environment
import _side_by_side
import _summary
from _one_process import OneProcess
from _pair import Pair
from _plan import AT_LEAST, OutOfTimeError, Plan, left
from _rounds import Measure, Taken
from _rows import ROWS, Row
from _sides import Child, ChildError

QUICK_PAIR_S = 2.0
"""What a pair of a quick run is taken to need before one of the row has been timed."""
MEASURING: Final = 0.25
"""The part of a pair's seconds that are not for building, where they have not been timed."""

Figures = Callable[[Row, list[dict[str, Any]]], dict[str, Any]]


def measure(
    row: Row,
    plan: Plan,
    record: dict[str, Any],
    save: Callable[[], None],
    *,
    figures: Figures = _summary.of_pairs,
) -> None:
    """Adds pairs to the row's record until it has as many as the plan wants; saves after each.

    `figures` says what pairs come to. Raises OutOfTimeError, ChildError and UnavailableError; the
    pairs before stay.
    """
    deadline = plan.row_deadline(row)
    pairs: list[dict[str, Any]] = record.setdefault("pairs", [])
    while len(pairs) < plan.pairs_now(row):
        left(deadline, sum(_needs(row, plan, record)))
        with _pair(row, plan, len(pairs)) as pair, _cut_off(pair, record):
            pair.build(deadline)
            found, note = pair.measure(deadline)
        _add(found, note, figures, row, plan, record)
        save()


@contextmanager
def together(
    taken: Sequence[Taken], plan: Plan, *, figures: Figures = _summary.of_pairs
) -> Iterator[Sequence[Measure]]:
    """Builds a pair of as many of the first rows as there is time for, at the same time; gives what
    measures each of them, which raises what went wrong with this row's building, too."""
    chosen = taken[: _fitting(taken, plan)]
    if len(chosen) == 1:
        yield [functools.partial(measure, figures=figures)]
        return
    with ExitStack() as opened:
        measures: list[Measure] = []
        with ThreadPoolExecutor(len(chosen)) as pool:  # its end waits for all of them
            for row, record in chosen:
                number = len(record.setdefault("pairs", []))
                pair = opened.enter_context(_pair(row, plan, number, len(chosen)))
                built = pool.submit(pair.build, plan.row_deadline(row)).result
                measures.append(functools.partial(_measure_built, pair, built, figures))
        yield measures


def _pair(row: Row, plan: Plan, number: int, built_with: int = 1) -> Pair:
    return (OneProcess if row.one_process else Pair)(row, plan, number, built_with)


def _measure_built(
    pair: Pair,
    built: Callable[[], None],
    figures: Figures,
    row: Row,
    plan: Plan,
    record: dict[str, Any],
    save: Callable[[], None],
) -> None:
    """`measure` of a pair that has been built with others; `built` raises what went wrong then."""
    with pair, _cut_off(pair, record):
        built()
        found, note = pair.measure(plan.row_deadline(row))
    _add(found, note, figures, row, plan, record)
    save()


def _fitting(taken: Sequence[Taken], plan: Plan) -> int:
    """How many of the first rows, at least one: building takes as long as the longest needs alone,
    measuring as long as all need."""
    needs = [_needs(row, plan, record) for row, record in taken]
    seconds = plan.deadline - time.monotonic()
    for count in range(len(taken), 1, -1):
        building, measuring = zip(*needs[:count], strict=True)
        if max(building) + sum(measuring) < seconds:
            return count
    return 1


@contextmanager
def _cut_off(pair: Pair, record: dict[str, Any]) -> Iterator[None]:
    """Keeps what a first pair needs at least, where the end of the run cuts it off."""
    try:
        yield
    except OutOfTimeError:
        if not record["pairs"]:
            record[AT_LEAST] = round(max(pair.s, record.get(AT_LEAST, 0.0)), 1)
        raise


def _add(
    found: dict[str, Any],
    note: str,
    figures: Figures,
    row: Row,
    plan: Plan,
    record: dict[str, Any],
) -> None:
    """Adds a pair to the row's record, and what all pairs come to."""
    pairs = record["pairs"]
    before = record.get("ran", note) if pairs else note
    if note != before:
        raise ChildError(f"the pairs that there are ran {before}, this one {note}: --again")
    come_to = figures(row, [*pairs, found])
    pairs.append(found)
    record |= {"date": _environment.today(), "environment": plan.environment(), "ran": note}
    record.update(come_to)
    record["state"] = "complete" if len(pairs) >= plan.pairs_of(row) else "partial"
    for outdated in ("error", AT_LEAST):
        record.pop(outdated, None)


def _needs(row: Row, plan: Plan, record: dict[str, Any]) -> tuple[float, float]:
    """Seconds that a pair is taken to need to be built, and to be measured: as many as the pairs
    before, or a guess."""
    pairs = record.get("pairs") or [{"s": _guess(row, plan, record)}]
    measuring = max(pair.get("measured_s", MEASURING * pair["s"]) for pair in pairs)
    return max(pair["s"] for pair in pairs) - measuring, measuring


def _guess(row: Row, plan: Plan, record: dict[str, Any]) -> float:
    """What the first pair of a row needs, which is less than the row may take; of one that the end
    of a run cut off it is known what it needs at least."""
    guess = QUICK_PAIR_S if plan.quick else row.pair_s
    return min(max(guess, float(record.get(AT_LEAST, 0.0))), 0.9 * row.limit_s)


def profile(row: Row, plan: Plan) -> dict[str, Any]:
    """Both sides of a row under torch.profiler, one after the other, put side by side; each in a
    process of its own, whatever the row has."""
    found: dict[str, dict[str, Any]] = {}
    size = plan.size(row)
    for name, side in (("native", plan.native), ("flagos", plan.device)):
        deadline = plan.row_deadline(row)
        with Child(side, row.name, size) as child:
            child.started(deadline)
            child.ask("build", deadline)
            child.ask("turn", deadline)
            found[name] = child.ask("profile", deadline)
            child.finished(deadline)
    return _side_by_side.side_by_side(found["native"], found["flagos"])


if __name__ == "__main__":
    import cuda

    steps = [row.name for row in ROWS if row.kind == "steps"]
    sys.exit(cuda.main(["--only", *steps, *sys.argv[1:]]))
