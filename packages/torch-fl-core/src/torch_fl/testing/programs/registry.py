"""Owns: what a program is, which ones there are, and which of them a device need not run."""

from __future__ import annotations

import fnmatch
import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, overload

import torch

__all__ = ["PROGRAMS", "Program", "Results", "Skipped", "load", "program", "select"]

Results = dict[str, torch.Tensor | str]
"""What a program gives, by name: tensors on its device or on the CPU, and texts, such as that of an
error which it provokes; names of devices in texts do not count."""
Function = Callable[[str], Results]


class Skipped(Exception):
    """Raised by a program for what this device does not have; the text says what that is.

    It must be raised for the same reason natively and on flagos.
    """


@dataclass(frozen=True)
class Program:
    """One program.

    `function` is called with the name of a device, such as "cuda", "cpu" or "flagos". It takes its
    inputs from `inputs`, so that they are the same in every process, and leaves the settings of
    the process as they were.
    """

    name: str
    function: Function
    accelerator: bool = False
    """it has no meaning where the native device is the CPU"""
    since: tuple[int, int] = (2, 11)
    """the first torch that has what it needs"""

    def missing(self, native: str) -> str:
        """Why it cannot run where `native` is the device below; empty if it can."""
        if self.accelerator and native == "cpu":
            return "only accelerators have what it does"
        if _torch() < self.since:
            return f"it needs torch {'.'.join(map(str, self.since))}"
        return ""


PROGRAMS: Final[dict[str, Program]] = {}
"""All programs by name, in the order in which they are run; `load` fills it."""


@overload
def program(function: Function, /) -> Function: ...
@overload
def program(
    *, accelerator: bool = ..., since: tuple[int, int] = ...
) -> Callable[[Function], Function]: ...
def program(
    function: Function | None = None,
    /,
    *,
    accelerator: bool = False,
    since: tuple[int, int] = (2, 11),
) -> Function | Callable[[Function], Function]:
    """Makes a function a program, named `<module>.<function>`; arguments as in `Program`."""

    def register(made: Function) -> Function:
        name = f"{made.__module__.rpartition('.')[2]}.{made.__name__}"
        assert name not in PROGRAMS, f"there are two programs {name}"
        PROGRAMS[name] = Program(name, made, accelerator, since)
        return made

    return register if function is None else register(function)


def load() -> dict[str, Program]:
    """All programs, by name."""
    from . import themes

    for module in sorted(pkgutil.iter_modules(themes.__path__), key=lambda found: found.name):
        importlib.import_module(f"{themes.__name__}.{module.name}")
    return PROGRAMS


def select(patterns: Iterable[str]) -> list[Program]:
    """The programs that match one of the patterns, such as ``vision.*``; all without patterns.

    Raises ValueError for a pattern that matches none.
    """
    known = load()
    chosen: set[str] = set()
    for pattern in (patterns := list(patterns)):
        found = fnmatch.filter(known, pattern)
        if not found:
            raise ValueError(f"no program matches {pattern!r}; --list shows them all")
        chosen.update(found)
    return [item for name, item in known.items() if not patterns or name in chosen]


def _torch() -> tuple[int, int]:
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)
