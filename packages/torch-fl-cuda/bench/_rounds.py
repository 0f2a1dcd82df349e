"""Owns: the order in which rows are measured, and what their records say when something goes wrong.

Rows take turns: a pair of processes for each, then another one for each. A run that is out of time
has something of every row then, and the same command goes on with the row that has the fewest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import _environment
from _plan import AT_LEAST, OutOfTimeError, Plan
from _results import Results
from _rows import Row
from _sides import ChildError, UnavailableError

Measure = Callable[[Row, Plan, dict[str, Any], Callable[[], None]], None]

FINAL = ("complete", "unavailable")


def run(
    rows: Sequence[Row],
    plan: Plan,
    results: Results,
    measure: Callable[[Row], Measure],
    again: Collection[str] = (),
) -> list[str]:
    """Measures what is missing of the rows; those named in `again` begin anew. Returns the names of
    those of which something is missing still."""
    build = _environment.build()
    found = ((row, _begin(row, plan, results, build, again=row.name in again)) for row in rows)
    begun = [(row, record) for row, record in found if record is not None]
    going_on = begun
    for number in range(1, plan.pairs + 1):
        turn = replace(plan, wanted=number)
        going_on = [
            (row, record)
            for row, record in going_on
            if _turn(row, turn, results, record, measure(row))
        ]
    return [row.name for row, record in begun if not _has_enough(row, plan, record)]


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
    if record.get("state") == "partial" and len(record.get("pairs", ())) >= plan.pairs:
        record["state"] = "complete"  # more were wanted before
        results.keep(row.name, record)
    return record


def _has_enough(row: Row, plan: Plan, record: dict[str, Any]) -> bool:
    if record.get("state") not in FINAL:
        return False
    in_pairs = row.kind in ("steps", "dispatch") and record["state"] == "complete"
    return not in_pairs or len(record["pairs"]) >= plan.pairs


def _turn(row: Row, plan: Plan, results: Results, record: dict[str, Any], measure: Measure) -> bool:
    """One turn of a row; whether it can have another one. What goes wrong is in its record, which
    takes its place among the results when there is something in it."""
    if len(record.get("pairs", ())) >= plan.pairs_now:
        return True  # of an earlier run

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
