"""Owns: the benchmark of torch.compile, `./dev bench compile`: flagos against the device natively.

    ./dev bench compile --compare --native cpu --json evidence/compile/host.json
    ./dev bench compile --compare --native cuda --mode max-autotune --json cuda.json

A row is a model in a mode. Its two sides run in processes of their own that take turns, in pairs,
as the rows of `./dev bench cuda` do, whose processes, statistics and file of results these are.
On a GPU rows compile at the same time, unless kernels are chosen by their time on the device.
Without `--compare` flagos runs alone, and nothing is recorded.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

SHARED = Path(__file__).parents[2] / "torch-fl-cuda" / "bench"
sys.path.append(str(SHARED))

import _command  # noqa: E402
import _comparison  # noqa: E402
import _compile_rows  # noqa: E402
import _rounds  # noqa: E402
import _sides  # noqa: E402
import _summary  # noqa: E402
import training  # noqa: E402
from _compile_rows import BOUNDARY, COMPILE_TIME, GAIN, MODELS, MODES, RUN_TIME  # noqa: E402
from _plan import OutOfTimeError, Plan, plan_of  # noqa: E402
from _results import Results, ResultsError  # noqa: E402
from _rows import Row  # noqa: E402
from _sides import Child, ChildError, UnavailableError  # noqa: E402

CHILD = Path(__file__).parent / "compiled" / "_compiled_child.py"
ALL = "all"
SHOWN_PHASES = 12


def parser() -> argparse.ArgumentParser:
    """The command line."""
    rows = "\n".join(f"  {row:<14}{text}" for row, text in _compile_rows.ABOUT.items())
    about = "Measures compiled models on flagos, and against the device natively."
    program = _command.program("compile", about, rows)
    add = program.add_argument
    add("--model", nargs="+", choices=MODELS, default=list(MODELS), help="default: all")
    text = "default: default; all: every one"
    add("--mode", nargs="+", choices=[*MODES, ALL], default=["default"], help=text)
    add("--compare", action="store_true", help="against the device used natively")
    add("--native", default="cpu", help="that device: cpu (the default) or cuda")
    add("--again", action="store_true", help="measure anew what the file has")
    add("--budget", type=float, default=3600, metavar="S", help="seconds for this run (3600)")
    return program


def of_pairs(row: Row, pairs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures of a row: flagos' times by native's, and what only flagos has."""
    turns = _summary.turns_of(pairs)
    natives, devices = ([pair[side]["reports"] for pair in pairs] for side in ("native", "device"))

    def by_native(name: str) -> _comparison.Estimate:
        each = zip(natives, devices, strict=True)
        return _comparison.cost([(native[name], device[name]) for native, device in each])

    compiled = [median(device for _, device in pair) for pair in turns]
    eager = [device["eager_ms"] for device in devices]
    boundary = [device["boundary_us"] for device in devices]
    estimates = {
        RUN_TIME: _comparison.run_time(turns),
        COMPILE_TIME: by_native("compile_s"),
        GAIN: _comparison.cost(list(zip(compiled, eager, strict=True))),
        BOUNDARY: _comparison.bootstrap(median, boundary),
    }
    figures = [_summary.figure(row, goal.figure, estimates[goal.figure]) for goal in row.goals]
    sides = {
        name: {
            "median": round(median(turn[place] for pair in turns for turn in pair), 5),
            "compile_s": round(median(each["compile_s"] for each in reports), 3),
            "eager": round(median(each["eager_ms"] for each in reports), 5),
        }
        for name, place, reports in (("native", 0, natives), ("flagos", 1, devices))
    }
    agreement = _summary.agreement_of(row, pairs)
    return {
        "unit": row.unit,
        **sides,
        "phases_s": _phases(natives, devices),
        "figures": figures,
        "agreement": agreement,
        "verdict": _summary.verdict(figures, agreement),
    }


def _phases(
    natives: Sequence[dict[str, Any]], devices: Sequence[dict[str, Any]]
) -> dict[str, tuple[float, float]]:
    """Median seconds of the compilation's phases on both sides, those first that differ most."""
    sides = [[reports.get("phases_s", {}) for reports in side] for side in (natives, devices)]
    names = {name for side in sides for phases in side for name in phases}
    found = {
        name: tuple(round(median(each.get(name, 0.0) for each in side), 3) for side in sides)
        for name in names
    }
    return dict(sorted(found.items(), key=lambda item: -abs(item[1][1] - item[1][0])))


def where_they_differ(record: dict[str, Any]) -> str:
    """The phases in which the compile times differ most; nothing where the goal is reached."""
    missed = {
        figure["figure"] for figure in record.get("figures", ()) if figure["verdict"] == "over"
    }
    if COMPILE_TIME not in missed:
        return ""
    most = [*record.get("phases_s", {}).items()][:SHOWN_PHASES]
    return ", ".join(f"{name} {native:g} -> {device:g}" for name, (native, device) in most)


def alone(row: Row, plan: Plan) -> str:
    """flagos without native: a line of its figures."""
    deadline = plan.row_deadline(row)
    size = plan.size(row)
    with Child(plan.device, row.name, size) as child:
        child.started(deadline)
        child.ask("build", deadline)
        compiled = median(child.ask("turn", deadline)["ms"] for _ in range(size["turns"]))
        said = child.finished(deadline)["reports"]
    return (
        f"{row.name:<28}compiled {compiled:.4g}, eager {said['eager_ms']:.4g} {row.unit} "
        f"(gain {said['eager_ms'] / compiled:.2f}), compilation {said['compile_s']:.1f} s, "
        f"boundary {said['boundary_us']:.2f} µs"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what the command line asks for; returns the exit status."""
    options = parser().parse_args(arguments)
    native, device = _sides.sides(options.native, "flagos")
    plan = plan_of(replace(native, program=CHILD), replace(device, program=CHILD), options)
    modes = MODES if ALL in options.mode else tuple(options.mode)
    rows = _compile_rows.rows(tuple(options.model), modes, plan.native.target)
    try:
        results = Results(options.json, options.native, "flagos", quick=options.quick)
        if options.reason:
            return _command.give_reason(results, *options.reason)
        if not options.compare:
            for row in rows:
                print(alone(row, plan), flush=True)
            return 0
        measure = functools.partial(training.measure, figures=of_pairs)
        again = [row.name for row in rows] if options.again else ()
        together = functools.partial(training.together, figures=of_pairs)
        missing = _rounds.run(rows, plan, results, lambda _: measure, again, together)
    except (ResultsError, ChildError, UnavailableError, OutOfTimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    status = _command.conclude(rows, results, missing, strict=options.strict)
    for row in rows:
        if phases := where_they_differ(results.rows.get(row.name, {})):
            print(f"{row.name}: seconds of compiling, native -> flagos: {phases}")
    return status


if __name__ == "__main__":
    sys.exit(main())
