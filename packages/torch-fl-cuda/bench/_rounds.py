"""Owns: the order in which rows are measured, and what their records say when something goes wrong.

Rows take turns: a pair of processes for each, then another one for each. A run that is out of time
has something of every row then, and the same command goes on with the row that has the fewest.
Rows that follow one another have their turn as a group where they may be built at the same time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Final

import _environment
from _plan import AT_LEAST, OutOfTimeError, Plan
from _results import Results
from _rows import Row
from _sides import ChildError, UnavailableError

Measure = Callable[[Row, Plan, dict[str, Any], Callable[[], None]], None]
Taken = tuple[Row, dict[str, Any]]
"""A row whose turn it is, and its record."""
Together = Callable[[Sequence[Taken], Plan], AbstractContextManager[Sequence[Measure]]]
"""Builds some of the first rows, at least one, at the same time; gives a measure for each."""

FINAL = ("complete", "unavailable")
MOST_TOGETHER: Final = 3
"""Rows of a group: the two processes of each are on the device at the same time, with all that they
hold of its memory."""


def run(
    rows: Sequence[Row],
    plan: Plan,
    results: Results,
    measure: Callable[[Row], Measure],
    again: Collection[str] = (),
    together: Together | None = None,
) -> list[str]:
    """Measures what is missing of the rows; those named in `again` begin anew. Without `together`
    there are no groups. Returns the names of those of which something is missing still."""
    build = _environment.build()
    found = ((row, _begin(row, plan, results, build, again=row.name in again)) for row in rows)
    begun = [(row, record) for row, record in found if record is not None]
    going_on = begun
    for number in range(1, plan.pairs + 1):
        turn = replace(plan, wanted=number)
        due = [each for each in going_on if len(each[1].get("pairs", ())) < number]
        ended: set[str] = set()
        for group in _groups(due, MOST_TOGETHER if together else 1):
            ended |= _turns(group, turn, results, measure, together)
        going_on = [each for each in going_on if each[0].name not in ended]
    return [row.name for row, record in begun if not _has_enough(row, plan, record)]


def _groups(due: Sequence[Taken], most: int) -> Iterator[Sequence[Taken]]:
    """Rows that follow one another and may be built at the same time; each other row is alone."""
    for together, rows in itertools.groupby(due, lambda taken: taken[0].together):
        group, size = list(rows), most if together else 1
        yield from (group[first : first + size] for first in range(0, len(group), size))


def _turns(
    group: Sequence[Taken],
    plan: Plan,
    results: Results,
    measure: Callable[[Row], Measure],
    together: Together | None,
) -> set[str]:
    """A turn of each row of a group; the names of those that cannot have another one."""
    ended = set()
    while group:
        alone = nullcontext([measure(group[0][0])])
        with together(group, plan) if together and len(group) > 1 else alone as measures:
            for (row, record), each in zip(group, measures, strict=False):
                if not _turn(row, plan, results, record, each):
                    ended.add(row.name)
        group = group[len(measures) :]
    return ended


def _begin(
    row: Row, plan: Plan, results: Results, build: str, *, again: bool
) -> dict[str, Any] | None:
    """The record to go on with, which is none of the results' yet where it is new; None where
    nothing is missing."""
    old = results.rows.get(row.name, {})
    if not again and _has_enough(row, plan, old):
        same = old.get("build") == build and old.get("size") == plan.size(row)
        note = "" if same else f"; with another build or size: --again {row.name} repeats it"
        print(f"{row.name}: measured on {old.get('date', 'an earlier day')}{note}", flush=True)
        return None
    known = plan.environment()
    identity = {"build": build, "size": plan.size(row), "torch": known["torch"]}
    record = results.record(row.name, identity | {"on": known.get("device", "CPU")}, again=again)
    if record.get("state") == "partial" and len(record.get("pairs", ())) >= plan.pairs_of(row):
        record["state"] = "complete"  # more were wanted before
        results.keep(row.name, record)
    return record


def _has_enough(row: Row, plan: Plan, record: dict[str, Any]) -> bool:
    if record.get("state") not in FINAL:
        return False
    in_pairs = row.kind in ("steps", "dispatch") and record["state"] == "complete"
    return not in_pairs or len(record["pairs"]) >= plan.pairs_of(row)


def _turn(row: Row, plan: Plan, results: Results, record: dict[str, Any], measure: Measure) -> bool:
    """One turn of a row; whether it can have another one. What goes wrong is in its record, which
    takes its place among the results when there is something in it."""

    def keep() -> None:
        results.keep(row.name, record)

    try:
        measure(row, plan, record, keep)
    except OutOfTimeError as error:
        print(f"{row.name}: out of time: {error}", flush=True)
        # Nothing new has been measured: what there was before stays.
        known = results.rows.setdefault(row.name, record)
        known.setdefault("state", "untested")
        if AT_LEAST in record:
            known[AT_LEAST] = record[AT_LEAST]
        results.save()
        return False
    except UnavailableError as error:
        record.update(state="unavailable", error=str(error))
        keep()
    except ChildError as error:
        record.update(state="failed", error=str(error))
        keep()
        print(error, flush=True)
        return False
    print(f"{row.name}: {record['state']}, {len(record.get('pairs', ()))} pairs", flush=True)
    return record["state"] not in FINAL
