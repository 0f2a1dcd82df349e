"""Owns: the rows of steps, in pairs of processes that take turns: native, and on the device.

    ./dev bench training [--only ROW ...]

They are rows of `./dev bench cuda`; this runs only them. The two processes of a pair live at the
same time and work one after the other, in random order: what changes on the machine while they do
meets both sides. Each pair has new processes. Building and warming happen one after the other too,
unless the row says otherwise: while cuDNN tries its algorithms nothing else may be on the device.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from typing import Any

import _environment
import _side_by_side
import _summary
from _plan import AT_LEAST, OutOfTimeError, Plan, left
from _rows import ROWS, Row, Size
from _sides import Child, ChildError

QUICK_PAIR_S = 2.0
"""What a pair of a quick run is taken to need before one of the row has been timed."""

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
    while len(pairs) < plan.pairs_now:
        left(deadline, max((pair["s"] for pair in pairs), default=_guess(row, plan, record)))
        pair, note = _pair(row, plan, record, deadline)
        before = record.get("ran", note) if pairs else note
        if note != before:
            raise ChildError(f"the pairs that there are ran {before}, this one {note}: --again")
        found = figures(row, [*pairs, pair])
        pairs.append(pair)
        record |= {"date": _environment.today(), "environment": plan.environment(), "ran": note}
        record.update(found)
        record["state"] = "complete" if len(pairs) >= plan.pairs else "partial"
        for outdated in ("error", AT_LEAST):
            record.pop(outdated, None)
        save()


def _guess(row: Row, plan: Plan, record: dict[str, Any]) -> float:
    """What the first pair of a row needs, which is less than the row may take; of one that the end
    of a run cut off it is known what it needs at least."""
    guess = QUICK_PAIR_S if plan.quick else row.pair_s
    return min(max(guess, float(record.get(AT_LEAST, 0.0))), 0.9 * row.limit_s)


def _pair(
    row: Row, plan: Plan, record: dict[str, Any], deadline: float
) -> tuple[dict[str, Any], str]:
    """`measure_pair`; the run's own end is no failure of the row."""
    began = time.monotonic()
    try:
        return measure_pair(row, plan, len(record["pairs"]), deadline)
    except ChildError:
        took = time.monotonic() - began
        try:
            left(plan.deadline)
        except OutOfTimeError:
            if not record["pairs"]:
                record[AT_LEAST] = round(max(took, record.get(AT_LEAST, 0.0)), 1)
            raise
        raise


def measure_pair(row: Row, plan: Plan, number: int, deadline: float) -> tuple[dict[str, Any], str]:
    """One pair; `number` decides the order of its turns. Returns it and the workload's note."""
    begin = time.monotonic()
    rng = random.Random(f"{row.name} {number}")
    size = plan.size(row)
    with (
        Child(plan.native, row.name, size) as native,
        Child(plan.device, row.name, size) as device,
    ):
        children = {"native": native, "device": device}
        ends: dict[str, dict[str, Any]] = {"native": {}, "device": {}}
        for name, child in children.items():
            said = child.started(deadline)
            ends[name] |= {key: round(said[key], 3) for key in ("start_s", "import_s")}
        order = rng.sample(sorted(children), 2)
        for names in (order,) if row.together else ([name] for name in order):
            for name in names:
                children[name].tell("build")
            for name in names:
                said = children[name].answer("build", deadline)
                ends[name] |= {"first": said["first"], "note": said["note"]}
                ends[name] |= {"build_s": round(said["s"], 2)}
        turns = _turns(children, size, rng, deadline)
        for name, child in children.items():
            ending = time.monotonic()
            said = child.finished(deadline)
            ends[name] |= {"end_s": round(time.monotonic() - ending, 2)}
            ends[name] |= {key: said[key] for key in ("last", "peak_bytes", "reports")}
    notes = {ends[name].pop("note") for name in children}
    if len(notes) > 1:
        raise ChildError(f"the two sides ran different things: {', '.join(sorted(notes))}")
    pair = {"turns": turns, **ends, "s": round(time.monotonic() - begin, 1)}
    return pair, notes.pop()


def _turns(
    children: dict[str, Child], size: Size, rng: random.Random, deadline: float
) -> list[list[float]]:
    turns = []
    for _ in range(size["turns"]):
        took = {
            name: round(children[name].ask("turn", deadline)["ms"], 6)
            for name in rng.sample(sorted(children), 2)
        }
        turns.append([took["native"], took["device"]])
    return turns


def profile(row: Row, plan: Plan) -> dict[str, Any]:
    """Both sides of a row under torch.profiler, one after the other, put side by side."""
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
