"""Owns: the order in which rows are measured, and what their records say when something goes wrong.

Rows take turns: a pair of processes for each, then another one for each. A run that is out of time
has something of every row then, and the same command goes on with the row that has the fewest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import _environment
from _plan import OutOfTimeError, Plan
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
) -> None:
    """Measures what is missing of the rows; those named in `again` begin anew."""
    build = _environment.build()
    going_on = [
        row for row in rows if _begin(row, plan, results, build, again=row.name in again)
    ]
    for number in range(1, plan.pairs + 1):
        for row in tuple(going_on):
            if not _turn(row, replace(plan, wanted=number), results, measure(row)):
                going_on.remove(row)


def missing(rows: Sequence[Row], results: Results) -> list[str]:
    """The names of the rows that another run would go on with."""
    states = {row.name: results.rows.get(row.name, {}).get("state") for row in rows}
    return [name for name, state in states.items() if state not in FINAL]


def _begin(row: Row, plan: Plan, results: Results, build: str, *, again: bool) -> bool:
    """Whether there is anything to measure."""
    old = results.rows.get(row.name, {})
    if not again and _has_enough(row, plan, old):
        same = old.get("build") == build and old.get("size") == plan.size(row)
        note = "" if same else f"; with another build or size: --again {row.name} repeats it"
        print(f"{row.name}: measured on {old.get('date', 'an earlier day')}{note}", flush=True)
        return False
    known = plan.environment()
    identity = {"build": build, "size": plan.size(row), "torch": known["torch"]}
    results.record(row.name, identity | {"on": known.get("device", "CPU")}, again=again)
    return True


def _has_enough(row: Row, plan: Plan, record: dict[str, Any]) -> bool:
    if record.get("state") not in FINAL:
        return False
    in_pairs = row.kind in ("steps", "dispatch") and record["state"] == "complete"
    return not in_pairs or len(record["pairs"]) >= plan.pairs


def _turn(row: Row, plan: Plan, results: Results, measure: Measure) -> bool:
    """One turn of a row; whether it can have another one. What goes wrong is in its record."""
    record = results.rows[row.name]
    if len(record.get("pairs", ())) >= plan.pairs_now:
        return True  # of an earlier run
    try:
        measure(row, plan, record, results.save)
    except OutOfTimeError as error:
        record.setdefault("state", "untested")
        print(f"{row.name}: out of time: {error}", flush=True)
        return False
    except UnavailableError as error:
        record.update(state="unavailable", error=str(error))
    except ChildError as error:
        record.update(state="failed", error=str(error))
        print(error, flush=True)
        return False
    finally:
        results.save()
    print(f"{row.name}: {record['state']}, {len(record.get('pairs', ()))} pairs", flush=True)
    return record["state"] not in FINAL
