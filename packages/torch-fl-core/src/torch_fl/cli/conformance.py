"""Owns: `torch-fl conformance`: PyTorch's own databases on the device, compared with stock CPU."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch_fl.cli.progress import Progress
    from torch_fl.testing.harness.results import UnitResult
    from torch_fl.testing.running import Outcome, Plan, Request

SUITES: Final = (
    "op_db",
    "error_inputs",
    "python_ref_db",
    "module_db",
    "optim_db",
    "foreach_op_db",
    "deterministic",
    "compiled",
)
"""The names for the help, which must not import torch; a test holds them to the suites."""

BY_NAME: Final = ("compiled",)

_KINDS: Final = ("hardware", "emulated", "host")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `torch-fl conformance`."""
    chosen = parser.add_argument_group(
        "what is run (names are separated by commas, entries may have wildcards)"
    )
    usual = ", ".join(name for name in SUITES if name not in BY_NAME)
    others = f"default: all of {usual}; there is also {', '.join(BY_NAME)}"
    chosen.add_argument("--suite", metavar="NAMES", help=others)
    chosen.add_argument(
        "--ops", metavar="NAMES", help="entries, such as 'add,nn.functional.*'; default: all"
    )
    chosen.add_argument("--passes", metavar="NAMES", help="see --list; default: those of the tier")
    chosen.add_argument(
        "--tier",
        choices=("ci", "full"),
        default="ci",
        help="ci: minutes, the first samples of each pass; full: all samples (default: ci)",
    )
    chosen.add_argument(
        "--configuration",
        metavar="NAMES",
        help="how the backend is set up, see --list; default: all that it has, all but the first "
        "with fewer samples",
    )
    chosen.add_argument("--shard", default="1/1", metavar="I/N", help="every N-th entry from I")
    device = parser.add_argument_group("where")
    device.add_argument("--plugin", default="", metavar="NAME", help="default: the one in use")
    device.add_argument(
        "--device",
        default="flagos",
        help="default: flagos; another one, such as cpu, without flagos",
    )
    device.add_argument("--kind", choices=_KINDS, help="default: hardware, or host for that plugin")
    device.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    device.add_argument(
        "--time-limit", type=float, default=120.0, metavar="S", help="for an entry in a pass"
    )
    device.add_argument("--seed", type=int, default=1, help="default: 1")
    results = parser.add_argument_group("results")
    results.add_argument("--out", type=Path, metavar="FILE", help="keep them, as JSON lines")
    results.add_argument("--resume", action="store_true", help="go on where --out stopped")
    results.add_argument(
        "--merge", type=Path, nargs="+", metavar="FILE", help="report on files of earlier runs"
    )
    results.add_argument(
        "--fingerprints", action="store_true", help="keep one of each case, for --against"
    )
    results.add_argument(
        "--against",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="with --merge: runs on the device itself that flagos stands on (--device cuda), each "
        "a file; several show what varies there",
    )
    results.add_argument(
        "--record",
        type=Path,
        metavar="FOLDER",
        help="record the run, or with --against the comparison, as evidence there",
    )
    results.add_argument(
        "--exclusions", type=Path, metavar="FOLDER", help="lists of known failures (YAML)"
    )
    results.add_argument("--verbose", action="store_true", help="a line for each entry and pass")
    other = parser.add_argument_group("instead of a run")
    other.add_argument("--list", action="store_true", help="list suites, passes, configurations")
    other.add_argument(
        "--selfcheck",
        action="store_true",
        help="make operators wrong on purpose: each suite must see it",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the suites; 0 if the device is stock CPU's equal, 1 if it is not, 2 for wrong usage."""
    from torch_fl.cli.main import UsageError
    from torch_fl.testing import evidence, running
    from torch_fl.testing.harness.exclusions import ExclusionError
    from torch_fl.testing.harness.results import ResultError
    from torch_fl.testing.harness.runner import WorkerStartError

    try:
        if arguments.list:
            return _list()
        request = _request(arguments)
        if arguments.selfcheck:
            return _selfcheck(request, arguments.verbose)
        if arguments.against:
            return _against(arguments)
        if arguments.merge:
            outcome = running.merged(arguments.merge, request.exclusions)
            _show_failures(outcome, arguments.verbose)
        else:
            outcome = _run(request, arguments.verbose)
        _conclude(outcome)
        if arguments.record:
            print(f"recorded in {evidence.record(arguments.record, outcome)}")
            print(outcome.report.closing_line())
        return 0 if outcome.report.ok else 1
    except (running.RequestError, ResultError, ExclusionError, evidence.EvidenceError) as error:
        raise UsageError(str(error)) from error
    except WorkerStartError as error:
        raise UsageError(f"{error}\n`torch-fl doctor` finds out what is wrong.") from error


def _request(arguments: argparse.Namespace) -> Request:
    from torch_fl.testing.running import Request, RequestError

    if arguments.resume and not arguments.out:
        raise RequestError("--resume needs --out FILE")
    if arguments.workers < 1:
        raise RequestError("--workers must be at least 1")
    index, slash, count = arguments.shard.partition("/")
    if not (slash and index.isdigit() and count.isdigit()):
        raise RequestError(f"--shard takes I/N, not {arguments.shard!r}")
    folder = {"exclusions": arguments.exclusions} if arguments.exclusions else {}
    return Request(
        device=arguments.device,
        plugin=arguments.plugin,
        kind=arguments.kind,
        tier=arguments.tier,
        suites=_names(arguments.suite),
        configurations=_names(arguments.configuration),
        passes=_names(arguments.passes),
        entries=_names(arguments.ops),
        shard=(int(index), int(count)),
        workers=arguments.workers,
        time_limit_s=arguments.time_limit,
        seed=arguments.seed,
        out=arguments.out,
        resume=arguments.resume,
        fingerprints=arguments.fingerprints,
        **folder,
    )


def _against(arguments: argparse.Namespace) -> int:
    from torch_fl.testing import side_by_side, side_by_side_evidence
    from torch_fl.testing.running import RequestError

    if not arguments.merge:
        raise RequestError("--against needs the run on flagos: --merge FILE")
    runs = side_by_side.load(arguments.merge, arguments.against)
    scores = side_by_side.compare(runs)
    print(*side_by_side.lines(scores), sep="\n")
    if arguments.record:
        print(f"recorded in {side_by_side_evidence.record(arguments.record, runs, scores)}")
    good = sum(score.ok for score in scores.values())
    print(f"{good} passed, {len(scores) - good} failed")
    return 0 if good == len(scores) else 1


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _list() -> int:
    from torch_fl.cli.tables import Page
    from torch_fl.testing.harness.configurations import CONFIGURATIONS
    from torch_fl.testing.suites import SUITES

    page = Page()
    page.heading("suites")
    page.facts((suite.name, suite.about) for suite in SUITES.values())
    page.heading("configurations")
    page.facts((item.name, item.about) for item in CONFIGURATIONS.values())
    for suite in SUITES.values():
        page.heading(f"passes of {suite.name}")
        page.facts((item.name, item.about) for item in suite.passes)
    return 0


def _run(request: Request, verbose: bool) -> Outcome:
    from torch_fl.cli.progress import Progress
    from torch_fl.testing import running

    shown: list[Progress] = []

    def start(plan: Plan, todo: int) -> None:
        header = plan.header
        version = f" {header.plugin_version}" if header.plugin_version else ""
        print(
            f"{header.plugin}{version} on {header.device} against stock CPU, torch "
            f"{header.torch}, tier {header.tier}: {todo} of {len(plan.keys())} units to run in "
            f"{', '.join(header.passes)}"
        )
        print(*plan.notes, sep="\n", end="\n" if plan.notes else "", flush=True)
        shown.append(Progress(max(todo, 1)))

    outcome = running.run(request, start, _teller(shown, verbose))
    if shown:
        shown[0].__exit__(None, None, None)
    return outcome


def _teller(shown: list[Progress], verbose: bool) -> Callable[[UnitResult], None]:
    """Prints failures, excluded ones too, and moves the progress bar."""
    count = failed = 0

    def tell(unit: UnitResult) -> None:
        nonlocal count, failed
        count += 1
        failed += not unit.ok
        if verbose or not unit.ok:
            _print_unit(unit)
        if shown:
            text = f"{unit.configuration} {unit.suite} {unit.entry}, {failed} failed"
            shown[0].update(count, text)

    return tell


def _print_unit(unit: UnitResult) -> None:
    from torch_fl.testing.harness.report import failure_lines, unit_line

    print(unit_line(unit), *failure_lines(unit), sep="\n", flush=True)


def _show_failures(outcome: Outcome, verbose: bool) -> None:
    for unit in outcome.units.values():
        if verbose or not unit.ok:
            _print_unit(unit)


def _conclude(outcome: Outcome) -> None:
    from torch_fl.cli.tables import Page
    from torch_fl.testing.harness.report import TABLE_COLUMNS, table_rows

    page = Page()
    page.text("")
    page.table(TABLE_COLUMNS, table_rows(outcome.report))
    page.text("")
    for part in outcome.report.parts:
        if part.excluded_entries:
            page.text(f"excluded, {part.title}: {', '.join(part.excluded_entries)}")
    for objection in outcome.report.objections():
        page.text(f"not ok: {objection}")
    page.text(outcome.report.closing_line())


def _selfcheck(request: Request, verbose: bool) -> int:
    from torch_fl.cli.tables import Page
    from torch_fl.testing import running

    def tell(unit: UnitResult) -> None:
        if verbose:
            _print_unit(unit)

    counts = running.selfcheck(request, tell)
    rows = [
        (suite, seen, needed, "ok" if seen >= needed else "FAILED")
        for suite, (seen, needed) in counts.items()
    ]
    Page().table(("suite", "entries that fail", "must be", "state"), rows)
    failed = sum(state != "ok" for *_, state in rows)
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0
