"""Owns: the one command of the benchmarks of NVIDIA GPUs: flagos against CUDA used natively.

    ./dev bench cuda --json evidence/cuda/performance.json

Measures what the file does not have yet, a pair for each row in turn, and stops when its time is
used up (--budget); the same command goes on. Without a GPU, `--native cpu --quick --pairs 2` tries
the whole benchmark on the host backend.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import _command
import _dispatch_runs
import _environment
import _rounds
import _starts
import _table
import _two_streams
import training
from _plan import OutOfTimeError, Plan, plan_of
from _results import Results, ResultsError
from _rows import BY_NAME, ROWS, Row
from _sides import ChildError, UnavailableError, sides

MEASURES = {
    "dispatch": _dispatch_runs.measure,
    "steps": training.measure,
    "starts": _starts.measure,
    "streams": _two_streams.measure,
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    names = [row.name for row in ROWS]
    rows = "\n".join(f"  {row.name:<16}{row.about}" for row in ROWS)
    about = "Measures flagos against CUDA used natively, row by row."
    program = _command.program("cuda", about, rows)
    add = program.add_argument
    add("--only", nargs="+", choices=names, default=names, metavar="ROW", help="these rows")
    add("--again", nargs="+", choices=names, default=[], metavar="ROW", help="measure anew")
    add("--budget", type=float, default=540, metavar="S", help="seconds for this run (540)")
    add("--native", default="cuda", help="the device used natively (cuda; cpu tries it)")
    add("--device", default="flagos", help="the device that is compared with it (flagos)")
    add("--profile", choices=names, metavar="ROW", help="profile both sides of a row of steps")
    return program


def _profile(row: Row, plan: Plan, results: Results) -> None:
    found = training.profile(row, plan)
    record = results.rows.setdefault(row.name, {})
    record["profile"] = {**found, "date": _environment.today()}
    results.save()
    print("\n".join(_table.profile_lines(found)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what the command line asks for; returns the exit status."""
    program = parser()
    options = program.parse_args(arguments)
    plan = plan_of(*sides(options.native, options.device), options)
    try:
        results = Results(options.json, options.native, options.device, quick=options.quick)
        if options.reason:
            return _command.give_reason(results, *options.reason)
        if options.profile:
            row = BY_NAME[options.profile]
            if row.kind != "steps":
                program.error(f"{row.name} has no steps that could be profiled")
            _profile(row, plan, results)
            return 0
        chosen = [row for row in ROWS if row.name in options.only]
        missing = _rounds.run(
            chosen,
            plan,
            results,
            lambda row: MEASURES[row.kind],
            options.again,
            together=training.together,
        )
    except (ResultsError, ChildError, UnavailableError, OutOfTimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return _command.conclude(chosen, results, missing, strict=options.strict)


if __name__ == "__main__":
    sys.exit(main())
