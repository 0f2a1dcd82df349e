"""Owns: ``python -m torch_fl.testing.programs``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from ..evidence_files import EvidenceError
from ..harness.results import Kind
from . import evidence
from .record import Record, RecordError
from .registry import Program, load, select
from .running import Request, RequestError, Result, run
from .side import StartError

_EPILOG = """\
outcomes: equal (bit for bit); varies natively (so does the native device between two runs);
skipped (this device does not have it); close (within PyTorch's tolerance); differs;
raises alike (nothing was compared); raises differently. The exit status is 1 where one is not
among the first three, unless the list for the CPU has it.

  python -m torch_fl.testing.programs --select 'attention.*' --json programs.json
  FLAGOS_PLUGIN=host python -m torch_fl.testing.programs      # the host backend against the CPU
  python -m torch_fl.testing.programs --json programs.json --kept --record evidence
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs programs and prints a line for each; the exit status."""
    options = _parser().parse_args(arguments)
    try:
        programs = select(options.select)
        if options.list:
            for program in programs:
                note = "  (accelerators only)" if program.accelerator else ""
                print(f"{program.name}{note}")
            return 0
        if (options.record or options.kept) and not options.json:
            raise RequestError("--record and --kept need --json FILE")
        results = _kept(options.json, programs) if options.kept else _made(options, programs)
        if options.record:
            kept = Record(options.json)
            print(f"recorded in {evidence.record(options.record, kept, load(), options.kind)}")
    except (RequestError, RecordError, EvidenceError, StartError, ValueError) as error:
        print(f"programs: {error}", file=sys.stderr)
        return 2
    counts = Counter(result.outcome for result in results)
    print(f"\n{len(results)} programs: " + ", ".join(f"{n} {name}" for name, n in counts.items()))
    wrong = [result.program for result in results if not result.as_expected]
    if wrong:
        print(f"not as they should be: {', '.join(wrong)}")
    return 1 if wrong else 0


def _made(options: argparse.Namespace, programs: Sequence[Program]) -> list[Result]:
    request = Request(
        programs=programs,
        native=options.native,
        plugin=options.plugin,
        json=options.json,
        again=options.again,
        time_limit_s=options.time_limit,
    )
    return run(request, _print_start, _print_result)


def _kept(path: Path, programs: Sequence[Program]) -> list[Result]:
    """What a file has of them, such as from another machine."""
    if not path.exists():
        raise RequestError(f"there is no {path}")
    found = Record(path).programs
    results = [Result.of(found[item.name], item.name) for item in programs if item.name in found]
    for result in results:
        _print_result(result)
    return results


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m torch_fl.testing.programs",
        description="Runs small programs natively and on flagos, and compares what they give.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--native", default="", metavar="TYPE", help="refuse to run if flagos stands on another")
    add("--plugin", default="", metavar="NAME", help="the backend, as FLAGOS_PLUGIN names it")
    add("--select", nargs="+", default=[], metavar="GLOB", help="programs, such as 'vision.*'")
    add("--json", type=Path, metavar="FILE", help="keep outcomes here; those of this build stay")
    add("--again", action="store_true", help="run what has an outcome in the file, too")
    add("--kept", action="store_true", help="run none, show and record what the file has")
    add("--record", type=Path, metavar="FOLDER", help="record the file's outcomes as evidence")
    add("--kind", choices=get_args(Kind), help="what it ran on, for --record (hardware, or host)")
    add("--time-limit", type=float, default=120.0, metavar="S", help="for one program (120)")
    add("--list", action="store_true", help="show the programs and run none")
    return parser


def _print_start(build: Mapping[str, str], todo: int) -> None:
    print(
        f"{build['plugin']} {build['plugin_version']} ({build['build']}) on {build['native']}, "
        f"{build['device']}; torch {build['torch']}; {todo} programs to run",
        flush=True,
    )
    print(f"{'program':40} {'outcome':18} {'native':>8} {'flagos':>8} {'peak':>6}")


def _print_result(result: Result) -> None:
    native, flagos = result.seconds
    below, peak = result.peaks
    ratio = f"{peak / below:6.2f}" if below and peak is not None else f"{'':6}"
    mark = "" if result.as_expected else "  <--"
    print(
        f"{result.program:40} {result.outcome:18} {native:7.2f}s {flagos:7.2f}s {ratio}{mark}",
        flush=True,
    )
    if result.detail:
        print(f"    {result.detail}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
