"""Owns: the command line of `./dev`: options, help texts, and which exit code an end gets."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ci.dev import (
    asan,
    bench,
    bootstrap,
    checks,
    docs,
    ecosystem,
    help_texts,
    lint,
    process,
    testing,
    wheels,
)
from ci.dev.areas import AREAS
from ci.dev.errors import StepError, UserError
from ci.dev.layout import Environment, Layout, find_environment

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("run", "test", "lint", "bench", "asan", "wheels", "ecosystem", "docs")

# pytest's options whose next word is a value that may look like a path to tests.
VALUED = ("--ignore", "--ignore-glob", "--deselect", "--basetemp", "--confcutdir", "-k", "-m")


def _common(default: object) -> argparse.ArgumentParser:
    """Options that may stand before or after the command."""
    common = argparse.ArgumentParser(add_help=False, argument_default=default)
    common.add_argument(
        "--torch",
        choices=("pinned", "installed"),
        help="pinned: the version in constraints/, in .venv (default); installed: the one that "
        "this interpreter has (2.11 or newer, a vendor's fork included), in .venv-installed",
    )
    common.add_argument(
        "--no-venv",
        action="store_true",
        default=default if default is argparse.SUPPRESS else False,
        help="with --torch=installed: install into this interpreter, without an environment",
    )
    return common


def parser() -> argparse.ArgumentParser:
    keep = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(
        prog="dev",
        description="Builds, runs and checks torch-fl from a checkout.",
        epilog=help_texts.OVERVIEW,
        formatter_class=keep,
        parents=[_common(None)],
    )
    commands = top.add_subparsers(dest="command", metavar="COMMAND")

    def add(name: str, about: str, examples: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=about,
            description=about[0].upper() + about[1:] + ".",
            epilog=examples,
            formatter_class=keep,
            parents=[_common(argparse.SUPPRESS)],
        )

    add("run", "build torch-fl and run its demo", help_texts.RUN)
    several: dict[str, Any] = {"action": "extend", "nargs": "+", "default": [], "metavar": "NAME"}
    areas = "\n".join(f"  {area.name:<8} {area.minutes:>3} min  {area.about}" for area in AREAS)
    test = add("test", "build torch-fl and run its tests", help_texts.TEST.format(areas=areas))
    test.add_argument("--full", action="store_true", help="everything, budgets or not")
    test.add_argument("--time-report", action="store_true", help="end with minutes per area")
    test.add_argument("--area", **several, help="only these areas")
    test.add_argument(
        "--ecosystem", action="store_true", help="other people's libraries, instead of the rest"
    )
    parts = "\n".join(f"  {part.name:<13} {part.about}" for part in lint.PARTS)
    linting = add(
        "lint", "check style, types and common mistakes", help_texts.LINT.format(parts=parts)
    )
    linting.add_argument("--fix", action="store_true", help="mend what can be mended")
    linting.add_argument("--part", **several, help="only these parts")
    benching = add("bench", "run a benchmark", help_texts.BENCH)
    benching.add_argument("name", nargs="?", default="", help="which one")
    benching.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the benchmark")
    add("asan", "run the threads test under AddressSanitizer", help_texts.ASAN)
    add(
        "wheels", "make the wheels, check them, try them in a second environment", help_texts.WHEELS
    )
    rows = "\n".join(f"  {row.script:<22} {row.library}" for row in ecosystem.ROWS)
    libraries = add(
        "ecosystem",
        "run other people's libraries on flagos",
        help_texts.ECOSYSTEM.format(rows=rows),
    )
    libraries.add_argument("name", nargs="*", help="only these rows")
    libraries.add_argument("--again", action="store_true", help="also what went well before")
    add("docs", "generate the pages that are made from the code", help_texts.DOCS)
    return top


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Ours, and what follows the first `--` (a benchmark's arguments need no `--`)."""
    words = list(arguments)
    if "--" not in words:
        return words, []
    place = words.index("--")
    return words[:place], words[place + 1 :]


def split_tests(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Arguments for pytest: its options, and the paths of tests among them, made absolute.

    The user gave the paths from his folder; pytest runs in the repository's.
    """
    options, paths = [], []
    for before, word in zip(["", *words], words, strict=False):
        path, separator, test = word.partition("::")
        looks = os.sep in path or separator or path.endswith(".py")
        if looks and not word.startswith("-") and before not in VALUED and Path(path).exists():
            paths.append(f"{Path(path).resolve()}{separator}{test}")
        else:
            options.append(word)
    return tuple(options), tuple(paths)


def _run(environment: Environment, arguments: Sequence[str]) -> int:
    bootstrap.prepare(environment, "run")
    command = [str(environment.script("torch-fl")), "demo", *arguments]
    print("dev: torch-fl demo", flush=True)
    os.execve(command[0], command, environment.variables())


def _dispatch(options: argparse.Namespace, rest: list[str]) -> int:
    checks.check_platform()
    torch = options.torch or "pinned"
    environment = find_environment(Layout(ROOT), torch, bool(options.no_venv))
    if rest and options.command in ("lint", "wheels", "ecosystem", "docs"):
        raise UserError(
            f"./dev {options.command} takes nothing after `--` (got: {' '.join(rest)})."
        )
    if options.command == "docs":
        return docs.main(environment.layout)
    if options.command == "ecosystem":
        return ecosystem.main(environment, options.name, options.again)
    if options.command == "wheels":
        return wheels.main(environment)
    if options.command == "test":
        areas = [*options.area, *(["ecosystem"] if options.ecosystem else [])]
        request = testing.Request(
            tuple(areas), options.full, options.time_report, *split_tests(rest)
        )
        return testing.main(environment, request)
    if options.command == "lint":
        return lint.main(environment, options.part, options.fix)
    if options.command == "bench":
        return bench.main(environment, options.name, [*options.arguments, *rest])
    if options.command == "asan":
        return asan.main(environment, rest)
    return _run(environment, rest)


def main(arguments: Sequence[str]) -> int:
    own, rest = _split(arguments)
    program = parser()
    options = program.parse_args(own)
    if options.command is None:
        if options.torch is None:
            program.print_help()
            return 0
        options.command = "run"  # `./dev --torch=installed`: the choice of torch is the request
    process.end_on_signals()
    try:
        return _dispatch(options, rest)
    except UserError as error:
        print(f"dev: error: {error}", file=sys.stderr)
        return 2
    except StepError as error:
        print(f"dev: error: {error}", file=sys.stderr)
        again = " ".join(["./dev", *arguments])
        print(f"dev: to run it again: {again}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndev: interrupted; the next run goes on from here", file=sys.stderr)
        return 130
