"""Owns: the command line, ``python -m torch_fl.testing.op_db``.

Exit status: 0 success, 1 a difference from stock CPU (or too few
samples, or a stale exclusion), 2 a wrong call.
"""

from __future__ import annotations

import argparse
import fnmatch
import platform
import sys
import time
from pathlib import Path
from typing import Final

from . import exclusions as exclusion_list
from .passes import PASSES
from .report import Report, expected_units, failure_lines, unit_line
from .results import Header, ResultError, ResultFile, UnitResult, merge
from .runner import Runner, Unit, WorkerStartError
from .tiers import TIERS
from .worker import Setup

_SELFCHECK_REQUIRED: Final = 90
"""Entries that a wrong add must make fail; a comparison that sees fewer is not to be trusted."""


def _parser() -> argparse.ArgumentParser:
    passes = "\n".join(f"  {item.name:<14} {item.description}" for item in PASSES.values())
    parser = argparse.ArgumentParser(
        prog="python -m torch_fl.testing.op_db",
        description="PyTorch's operator database, a device compared with stock CPU.",
        epilog=f"passes:\n{passes}\n\ngroups of passes: float32 (forward, grad), dtypes (the rest)",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", default="flagos", help="the device under test")
    parser.add_argument("--tier", choices=("ci", "full"), default="ci")
    parser.add_argument("--passes", help="comma-separated passes or groups; default: all")
    parser.add_argument("--ops", help="comma-separated entries, wildcards allowed; default: all")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="every N-th entry from I")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--time-limit", type=float, default=120.0, metavar="S", help="per unit")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep the results (JSON lines)")
    parser.add_argument("--resume", action="store_true", help="go on where --out stopped")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="FILE", help="report on files")
    parser.add_argument("--exclusions", type=Path, default=exclusion_list.DEFAULT_FILE)
    parser.add_argument("--list", action="store_true", help="list the entries and end")
    parser.add_argument("--selfcheck", action="store_true", help="run with a wrong add")
    parser.add_argument("--verbose", action="store_true", help="a line for each entry and pass")
    return parser


class UsageError(ValueError):
    """Options that do not fit together or name what does not exist."""


def _chosen_passes(text: str | None) -> list[str]:
    if text is None:
        return list(PASSES)
    float32 = ["forward", "grad"]
    groups = {"float32": float32, "dtypes": [name for name in PASSES if name not in float32]}
    chosen: set[str] = set()
    for name in text.split(","):
        if name not in PASSES and name not in groups:
            raise UsageError(f"there is no pass {name!r}")
        chosen.update(groups.get(name, [name]))
    return [name for name in PASSES if name in chosen]


def _chosen_entries(entries: tuple[str, ...], ops: str | None, shard: str) -> list[str]:
    chosen = list(entries)
    if ops is not None:
        patterns = ops.split(",")
        for pattern in patterns:
            if not fnmatch.filter(entries, pattern):
                raise UsageError(f"no entry of op_db matches {pattern!r}")
        chosen = [name for name in entries if any(fnmatch.fnmatch(name, p) for p in patterns)]
    try:
        index, count = (int(part) for part in shard.split("/"))
    except ValueError:
        raise UsageError(f"--shard takes I/N, not {shard!r}") from None
    if not 1 <= index <= count:
        raise UsageError(f"--shard {shard}: I must lie between 1 and N")
    return chosen[index - 1 :: count]


def _exclusions(options: argparse.Namespace, header: Header) -> list[exclusion_list.Exclusion]:
    """The exclusion list; none where the CPU itself is under test, to try the harness out."""
    exclusions = exclusion_list.load(options.exclusions, header.entries, PASSES)
    return [] if header.device == "cpu" else exclusions


class _Progress:
    """What is printed while units come in."""

    def __init__(self, total: int, verbose: bool, show_failures: bool) -> None:
        self._total = total
        self._verbose = verbose
        self._show_failures = show_failures
        self._count = 0
        self._started = time.monotonic()

    def show(self, unit: UnitResult) -> None:
        self._count += 1
        if self._verbose or (self._show_failures and not unit.ok):
            print(unit_line(unit), *failure_lines(unit), sep="\n", flush=True)
        tenth = self._count * 10 // self._total
        if tenth != (self._count - 1) * 10 // self._total:
            elapsed = time.monotonic() - self._started
            print(f"{tenth * 10:3d} % after {elapsed:.0f} s", flush=True)


def _run(options: argparse.Namespace) -> int:
    passes = _chosen_passes(options.passes)
    setup = Setup(options.device, options.seed, TIERS[options.tier])
    runner = Runner(setup, options.workers, options.time_limit)
    try:
        header = Header(
            device=runner.ready.device,
            tier=options.tier,
            torch=runner.ready.torch,
            python=platform.python_version(),
            machine=platform.machine(),
            seed=options.seed,
            passes=tuple(passes),
            entries=runner.ready.entries,
        )
        if options.list:
            print("\n".join(_chosen_entries(header.entries, options.ops, options.shard)))
            return 0
        exclusions = _exclusions(options, header)
        entries = _chosen_entries(header.entries, options.ops, options.shard)
        units: list[Unit] = [(entry, name) for entry in entries for name in passes]
        file = ResultFile(options.out, header, resume=options.resume) if options.out else None
        done = dict(file.done) if file else {}
        todo = [unit for unit in units if unit not in done]
        print(
            f"{len(entries)} entries of op_db, {header.device} against stock CPU, torch "
            f"{header.torch}, tier {header.tier}: {len(todo)} of {len(units)} units to run",
            flush=True,
        )
        progress = _Progress(len(todo), options.verbose, show_failures=True)

        def on_result(unit: UnitResult) -> None:
            done[unit.key] = unit
            if file:
                file.append(unit)
            progress.show(unit)

        runner.run(todo, on_result)
        if file:
            file.close()
    finally:
        runner.close()
    chosen = {key: unit for key, unit in done.items() if key in set(units)}
    whole = len(entries) == len(header.entries)
    return _conclude(Report.of(chosen, set(units), exclusions, whole=whole), header.device)


def _merge(options: argparse.Namespace) -> int:
    header, units = merge(options.merge)
    exclusions = _exclusions(options, header)
    for unit in units.values():
        if options.verbose or not unit.ok:
            print(unit_line(unit), *failure_lines(unit), sep="\n")
    return _conclude(Report.of(units, expected_units(header), exclusions), header.device)


def _conclude(report: Report, device: str) -> int:
    print(*report.closing_lines(device), sep="\n")
    return 0 if report.ok else 1


def _selfcheck(options: argparse.Namespace) -> int:
    limits = TIERS["selfcheck"]
    runner = Runner(
        Setup(options.device, options.seed, limits, wrong_add=True),
        options.workers,
        options.time_limit,
    )
    seen: set[str] = set()
    died: set[str] = set()
    try:
        entries = _chosen_entries(runner.ready.entries, options.ops, options.shard)
        units: list[Unit] = [(entry, name) for entry in entries for name in limits]
        print(f"{len(entries)} entries with a wrong add on {runner.ready.device}", flush=True)
        progress = _Progress(len(units), options.verbose, show_failures=False)

        def on_result(unit: UnitResult) -> None:
            if unit.status != "done":
                died.add(unit.op)  # no comparison saw anything
            elif unit.failed:
                seen.add(unit.op)
            progress.show(unit)

        runner.run(units, on_result)
    finally:
        runner.close()
    if died:
        print(f"crashed or timed out, not counted: {', '.join(sorted(died))}")
    ok = len(seen) >= _SELFCHECK_REQUIRED
    print(
        f"selfcheck {'passed' if ok else 'failed'}: a wrong add makes {len(seen)} entries fail, "
        f"at least {_SELFCHECK_REQUIRED} must"
    )
    return 0 if ok else 1


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.resume and not options.out:
        parser.error("--resume needs --out FILE")
    if options.workers < 1:
        parser.error("--workers must be at least 1")
    try:
        if options.merge:
            return _merge(options)
        return _selfcheck(options) if options.selfcheck else _run(options)
    except (UsageError, ResultError, exclusion_list.ExclusionError, WorkerStartError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; --resume with --out goes on", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
