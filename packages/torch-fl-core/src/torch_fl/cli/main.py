"""Owns: the command line of `torch-fl`: its subcommands as data, parsing, help and exit codes.

Exit codes: 0 done, 1 the work failed and said why, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Sequence


class CommandError(Exception):
    """A subcommand cannot do its work; the text says why and what to do about it."""


class UsageError(CommandError):
    """What the user wrote after the command makes no sense; the text says why."""


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
        name="info",
        summary="show versions, backend, devices and settings",
        module="torch_fl.cli.info",
        examples=(
            ("torch-fl info", "what a bug report needs"),
            ("torch-fl info --json", "the same for programs"),
        ),
    ),
    Command(
        name="doctor",
        summary="find out what is wrong and what to do about it",
        module="torch_fl.cli.doctor",
        examples=(
            ("torch-fl doctor", "check everything; exit code 0 when all is well, else 1"),
            ("torch-fl doctor --time-limit 300", "on a machine that is very slow"),
            ("torch-fl doctor --json", "every check with its advice, for programs"),
        ),
    ),
    Command(
        name="routes",
        summary="show what runs an operator, and what decided that",
        module="torch_fl.cli.routes",
        examples=(
            ("torch-fl routes", "operators that are not on their own route, and how many are"),
            ("torch-fl routes add.Tensor --dtype int64", "one operator: its route, and why"),
            ("torch-fl routes '_foreach_*'", "all operators that a pattern of routes files names"),
            ("torch-fl routes --all | grep conv", "every operator"),
            ("FLAGOS_OP_mm=cpu torch-fl routes mm", "what a setting would do"),
        ),
    ),
    Command(
        name="plugins",
        summary="show what backends there are, and why each is used",
        module="torch_fl.cli.plugins",
        examples=(
            ("torch-fl plugins", "how far each came, and why"),
            ("torch-fl plugins --verbose", "with the traceback of each that failed"),
            ("FLAGOS_PLUGIN=host torch-fl plugins", "what a setting would do"),
        ),
    ),
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
    Command(
        name="conformance",
        summary="compare the device with stock CPU in PyTorch's own databases",
        module="torch_fl.cli.conformance",
        examples=(
            ("torch-fl conformance", "every suite, the ci tier; exit code 0 when all is equal"),
            ("torch-fl conformance --suite op_db --ops 'add,linalg.*' --verbose", "a few entries"),
            ("torch-fl conformance --suite optim_db --configuration plain", "one configuration"),
            ("torch-fl conformance --tier full --out r.jsonl --resume", "hours; may be stopped"),
            ("torch-fl conformance --merge a.jsonl b.jsonl", "what the shards of a run gave"),
            ("torch-fl conformance --selfcheck", "whether the suites see wrong operators"),
        ),
    ),
    Command(
        name="completion",
        summary="print a script by which a shell completes commands",
        module="torch_fl.cli.completion",
        examples=(
            ('eval "$(torch-fl completion bash)"', "in ~/.bashrc"),
            ('eval "$(torch-fl completion zsh)"', "in ~/.zshrc, after compinit"),
            ("torch-fl completion fish | source", "in ~/.config/fish/config.fish"),
        ),
    ),
)


def _version() -> str:
    import torch_fl

    return torch_fl.__version__


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
    parser.add_argument("-V", "--version", action="version", version=f"torch-fl {_version()}")
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
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an ASCII terminal lacks a sign here and there
    try:
        status = int(arguments.run(arguments))
        sys.stdout.flush()
        return status
    except CommandError as error:
        print(f"torch-fl {arguments.command}: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except BrokenPipeError:
        # Who read it, such as `head`, has seen enough. Python must not try again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ImportError as error:
        print(
            f"torch-fl {arguments.command}: {error}\n`torch-fl doctor` finds out what is wrong.",
            file=sys.stderr,
        )
        return 1
    except OSError as error:  # such as a full disk behind standard output
        print(f"torch-fl {arguments.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"torch-fl {arguments.command}: interrupted", file=sys.stderr)
        return 130
