"""Owns: which migrations are in force in a thread, and how threads started inside inherit them.

A migration holds in the thread that began it and in the threads started inside; other threads see
PyTorch as it is. What has to be replaced for the whole process (adaptations.py) asks `current()`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode

from torch_fl._compat import function_modes
from torch_fl.migrate.report import Report

__all__ = ["Scope", "current", "enter", "inherited", "inside", "leave"]


class Scope:
    """One migration: its report, and the one around it."""

    def __init__(self, around: Scope | None, report: Report) -> None:
        self.around = around
        self.report = report
        self.open = True

    def add(self, name: str) -> None:
        """Counts a rewriting, here and in the migrations around this one."""
        self.report.add(name)
        if self.around:
            self.around.add(name)

    def add_limit(self, name: str, advice: str) -> None:
        self.report.add_limit(name, advice)
        if self.around:
            self.around.add_limit(name, advice)


class ScopedMode(TorchFunctionMode):
    """A function mode that renames devices; it knows its scope where the thread does not."""

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self.scope = scope


class _Thread(threading.local):
    def __init__(self) -> None:
        self.entered: list[tuple[Scope, ScopedMode]] = []


_thread = _Thread()


def current() -> Scope | None:
    """The calling thread's innermost migration; None where there is none, or it has ended."""
    entered = _thread.entered
    if entered:
        innermost = entered[-1][0]
        if innermost.open:
            return innermost
        return next((scope for scope, _ in reversed(entered) if scope.open), None)
    # A thread of C++, such as a worker of the autograd engine, has its caller's function modes.
    for mode in reversed(function_modes.stack()):
        if isinstance(mode, ScopedMode) and mode.scope.open:
            return mode.scope
    return None


def inside() -> bool:
    return current() is not None


def enter(scope: Scope, mode: ScopedMode) -> None:
    """Puts `scope` in force in the calling thread."""
    _thread.entered.append((scope, mode))
    function_modes.push(mode)


def leave(scope: Scope) -> None:
    """Takes `scope` out of force in the calling thread, where it was entered."""
    (place,) = [at for at, (entered, _) in enumerate(_thread.entered) if entered is scope]
    _, mode = _thread.entered.pop(place)
    function_modes.remove(mode)


def mode_in_force() -> ScopedMode | None:
    """The mode of the calling thread's migration, for code that runs while PyTorch has put it
    aside."""
    scope = current()
    return next((mode for entered, mode in _thread.entered if entered is scope), None)


def inherited(
    start: Callable[..., Any], mode_of: Callable[[Scope], ScopedMode]
) -> Callable[..., Any]:
    """`threading.Thread.start` that gives the new thread the starting thread's migration."""

    def start_inside(thread: threading.Thread) -> Any:
        scope = current()
        if scope is None:
            return start(thread)
        run = thread.run

        def run_inside() -> None:
            enter(scope, mode_of(scope))
            try:
                run()
            finally:
                leave(scope)

        thread.run = run_inside  # type: ignore[method-assign]
        return start(thread)

    return start_inside
