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
from pathlib import Path
from typing import Any

import _dispatch_runs
import _environment
import _rounds
import _starts
import _table
import _two_streams
import training
from _plan import Plan, plan_of
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
    program = argparse.ArgumentParser(
        prog="./dev bench cuda",
        description="Measures flagos against CUDA used natively, row by row.",
        epilog=f"rows:\n{rows}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = program.add_argument
    add("--json", type=Path, metavar="FILE", help="where results are; what it has stays")
    add("--only", nargs="+", choices=names, default=names, metavar="ROW", help="these rows")
    add("--again", nargs="+", choices=names, default=[], metavar="ROW", help="measure anew")
    add("--pairs", type=int, default=5, metavar="N", help="pairs of processes (5) for a row")
    add("--budget", type=float, default=540, metavar="S", help="seconds for this run (540)")
    add("--quick", action="store_true", help="tiny sizes: tries the benchmark, measures nothing")
    add("--native", default="cuda", help="the device used natively (cuda; cpu tries it)")
    add("--device", default="flagos", help="the device that is compared with it (flagos)")
    add("--profile", choices=names, metavar="ROW", help="profile both sides of a row of steps")
    add("--reason", nargs=2, metavar=("ROW", "TEXT"), help="why a row misses, into the file")
    add("--strict", action="store_true", help="exit with 1 unless all rows are ok")
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
            name, text = options.reason
            if name not in results.rows:
                program.error(f"{name} has no results that could have a reason")
            results.rows[name]["reason"] = text
            results.save()
            return 0
        if options.profile:
            row = BY_NAME[options.profile]
            if row.kind != "steps":
                program.error(f"{row.name} has no steps that could be profiled")
            _profile(row, plan, results)
            return 0
        chosen = [row for row in ROWS if row.name in options.only]
        _rounds.run(chosen, plan, results, lambda row: MEASURES[row.kind], options.again)
    except (ResultsError, ChildError, UnavailableError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2

    print()
    done = [results.rows.get(row.name, {}) for row in chosen]
    for row, each in zip(chosen, done, strict=True):
        print("\n".join([*_table.lines(row, each), *_table.operator_lines(each)]))
    missing = _rounds.missing(chosen, results)
    if missing:
        print(f"not complete: {', '.join(missing)}. The same command goes on.")
    good = not missing and all(each.get("verdict") not in ("over", "wrong") for each in done)
    return 1 if options.strict and not good else 0


if __name__ == "__main__":
    sys.exit(main())
