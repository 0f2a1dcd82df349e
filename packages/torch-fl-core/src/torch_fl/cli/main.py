"""Owns: the command line of `torch-fl`: its subcommands as data, parsing, help and exit codes.

Exit codes: 0 done, 1 the work failed and said why, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Sequence


class CommandError(Exception):
    """A subcommand cannot do its work; the text says why and what to do about it."""


class _Module(Protocol):
    """What a subcommand's module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, arguments: argparse.Namespace) -> int: ...


@dataclass(frozen=True)
class Command:
    """A subcommand. Its module has `add_arguments(parser)` and `run(arguments) -> exit code`."""

    name: str
    summary: str
    module: str
    examples: tuple[tuple[str, str], ...]
    """Pairs of a command line and what it does, for the help."""

    def load(self) -> _Module:
        """Import the module that does the work."""
        return cast("_Module", importlib.import_module(self.module))


COMMANDS = (
    Command(
        name="demo",
        summary="train a small CNN on handwritten digits and show what ran where",
        module="torch_fl.cli.demo",
        examples=(
            ("torch-fl demo", "train and evaluate on flagos"),
            ("torch-fl demo --device cpu", "the same on the CPU, to compare"),
            ("torch-fl demo --epochs 40 --seed 7", "longer, from other random numbers"),
        ),
    ),
)


def _version() -> str:
    try:
        return importlib.metadata.version("torch-fl-core")
    except importlib.metadata.PackageNotFoundError:
        return "unknown (not installed as a package)"


def _epilog(examples: Sequence[tuple[str, str]]) -> str:
    width = max(len(line) for line, _ in examples)
    return "\n".join(["examples:", *(f"  {line:<{width}}  {what}" for line, what in examples)])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="torch-fl",
        description="One PyTorch device, flagos, in front of every accelerator.",
        epilog=_epilog([command.examples[0] for command in COMMANDS]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"torch-fl {_version()}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for command in COMMANDS:
        subparser = subparsers.add_parser(
            command.name,
            help=command.summary,
            description=command.summary[0].upper() + command.summary[1:] + ".",
            epilog=_epilog(command.examples),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.load().add_arguments(subparser)
        subparser.set_defaults(run=command.load().run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run `torch-fl` with `argv`, by default the process's arguments, and return the exit code."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        return int(arguments.run(arguments))
    except CommandError as error:
        print(f"torch-fl {arguments.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"torch-fl {arguments.command}: interrupted", file=sys.stderr)
        return 130
