"""Owns: `./dev test`: runs the areas one after another and tells how they went."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ci.dev import bootstrap, process, results
from ci.dev.areas import AREAS, Area, Command
from ci.dev.errors import StepError, UserError
from ci.dev.layout import Environment
from ci.dev.results import Counts, Result

# A hang must end a run, a slow machine must not: far beyond any budget.
LIMIT_FACTOR = 4
FULL_LIMIT_MINUTES = 600
REPORTS_KEPT = 5


@dataclass(frozen=True)
class Request:
    """What the user asked `./dev test` for: `paths` are the tests that he names (absolute),
    `pytest` are his other arguments for pytest."""

    areas: tuple[str, ...] = ()
    full: bool = False
    time_report: bool = False
    pytest: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @property
    def narrows(self) -> bool:
        return bool(self.pytest or self.paths)


def choose(request: Request) -> list[Area]:
    """The areas of a request. Arguments for pytest alone mean the areas that pytest runs.

    Raises UserError for an unknown name.
    """
    known = {area.name: area for area in AREAS}
    unknown = [name for name in request.areas if name not in known]
    if unknown:
        raise UserError(
            f"there is no area {', '.join(unknown)}. The areas are: {', '.join(known)}."
        )
    if request.areas:
        return [area for area in AREAS if area.name in request.areas]
    usual = [area for area in AREAS if not area.on_request]
    if request.narrows:
        return [area for area in usual if area.takes_pytest_arguments]
    return usual


def main(environment: Environment, request: Request) -> int:
    areas = choose(request)
    done: list[Result] = []
    try:
        if _build(environment, done):
            reports = _reports(environment)
            for area in filter(lambda area: area.commands, areas):
                done.append(Result(area.name, area.minutes))
                _run_area(environment, area, request, reports, done[-1])
    except KeyboardInterrupt:
        done[-1].fail(130, "interrupted")
    return _tell(environment, request, done)


def _build(environment: Environment, done: list[Result]) -> bool:
    """The preparation, as the first area. Nothing can be tested when it fails."""
    result = Result("build", next(area.minutes for area in AREAS if area.name == "build"))
    start = time.monotonic()
    done.append(result)
    try:
        bootstrap.prepare(environment, "test")
    except StepError as error:
        print(f"dev: {error}", flush=True)
        result.fail(1, "the preparation failed")
    result.minutes = (time.monotonic() - start) / 60
    return result.status == 0


def _reports(environment: Environment) -> Path:
    """A new folder for this run's reports (two runs may overlap); the oldest ones go."""
    folder = environment.layout.work / "reports"
    folder.mkdir(parents=True, exist_ok=True)
    earlier = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    for old in earlier[: -REPORTS_KEPT + 1]:
        shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=folder))


def _run_area(
    environment: Environment, area: Area, request: Request, reports: Path, result: Result
) -> None:
    print(f"\n== {area.name}: {area.about} (budget {area.minutes} min) ==", flush=True)
    start = time.monotonic()
    minutes = FULL_LIMIT_MINUTES if request.full else area.minutes * LIMIT_FACTOR
    for number, command in enumerate(_commands(environment, area, request)):
        left = minutes * 60 - (time.monotonic() - start)
        if not any((environment.layout.root / path).exists() for path in command.needs):
            result.fail(1, f"there is no {' and no '.join(command.needs)}")
        elif left <= 0:
            result.fail(process.TIMED_OUT, f"no time was left for {command.target}")
        elif command.kind != "pytest":
            _run_program(environment, command, result, left)
        else:
            report = reports / f"{area.name}-{number}.xml"
            _run_pytest(environment, command, request, result, report, left)
    if request.narrows and not result.counts.executed and not result.status:
        result.fail(results.NOTHING_RAN, "the pytest arguments leave no test")
    result.minutes = (time.monotonic() - start) / 60
    for note in result.notes:
        print(f"dev: {area.name}: {note}", flush=True)


def _commands(environment: Environment, area: Area, request: Request) -> list[Command]:
    """The area's commands. Tests that the user names are run once, whatever their markers: only by
    the first command on the folder that holds them."""
    if not request.paths:
        return list(area.chosen(request.full))
    folders = {command.target: command for command in reversed(area.commands)}
    root = environment.layout.root
    return [
        command
        for target, command in folders.items()
        if any(_within(path, root / target) for path in request.paths)
    ]


def _run_pytest(
    environment: Environment,
    command: Command,
    request: Request,
    result: Result,
    report: Path,
    limit: float,
) -> None:
    """Runs pytest and adds up its report."""
    root = environment.layout.root
    # The configuration is named, because a package's own pyproject.toml lies nearer to its tests.
    line = [str(environment.python), "-m", "pytest", "-c", str(root / "pyproject.toml")]
    line += ["--rootdir", str(root), f"--junitxml={report}", *command.arguments]
    inside = [path for path in request.paths if _within(path, root / command.target)]
    if command.marker and not inside:
        line += ["-m", command.marker]
    if process.is_interactive():
        line.append("--color=yes")
    line += [*request.pytest, *(inside or [command.target])]
    debugger = sys.stdin.isatty() and not {"--pdb", "--trace"}.isdisjoint(request.pytest)
    print("$ " + shlex.join(line), flush=True)
    env = environment.variables()
    status = process.run(line, env=env, cwd=root, limit=limit, interactive=debugger)
    counts = results.from_junit(report) or Counts()
    result.counts.add(counts)
    if status == results.NOTHING_RAN and not request.narrows:
        marked = f" for -m '{command.marker}'" if command.marker else ""
        result.fail(status, f"{command.target} holds no test{marked}")
    elif status == process.TIMED_OUT:
        result.fail(status, f"{command.target} was ended after {limit / 60:.0f} minutes")
    elif status and status != results.NOTHING_RAN:
        result.fail(status, f"pytest on {command.target} ended with status {status}")


def _run_program(environment: Environment, command: Command, result: Result, limit: float) -> None:
    """Runs a module or a command of `./dev` and takes the counts of its closing line."""
    line = [str(environment.python), "-u"]
    if command.kind == "module":
        line += ["-m", command.target]
    else:
        line += [str(environment.layout.root / "dev"), *environment.flags, command.target]
    line += command.arguments
    print("$ " + shlex.join(line), flush=True)
    lines: list[str] = []

    def show(text: str) -> None:
        lines.append(text)
        print(text, end="", flush=True)

    env, root = environment.variables(), environment.layout.root
    status = process.run(line, env=env, cwd=root, limit=limit, on_line=show)
    counts = results.from_lines(lines)
    result.counts.add(counts or Counts())
    if status:
        result.fail(status, f"{command.target} ended with status {status}")
    elif counts is None:
        result.fail(1, f"{command.target} printed no line `N passed, N failed`")
    elif counts.failed:
        result.fail(1, f"{command.target} reports failures")


def _within(argument: str, folder: Path) -> bool:
    return Path(argument.partition("::")[0]).resolve().is_relative_to(folder.resolve())


def _tell(environment: Environment, request: Request, done: Sequence[Result]) -> int:
    """The summary; its last line is the closing line that CI reads."""
    status = results.worst(done)
    print()
    if request.time_report:
        print(results.table(done))
    print(f"dev: {results.summary(done)}")
    for result in done:
        for note in result.notes:
            print(f"dev: {result.area}: {note}")
        if result.status:
            print(f"dev: to run it again: {_again(environment, request, result.area)}")
    if not results.total(done).executed:
        print("dev: no test was executed")
    print(results.closing_line(done), flush=True)
    return status


def _again(environment: Environment, request: Request, area: str) -> str:
    words = ["./dev", "test", *environment.flags]
    words += ["--full"] if request.full else []
    words += ["--area", area] if area != "build" else []
    words += ["--", *request.pytest, *request.paths] if request.narrows else []
    return shlex.join(words)
