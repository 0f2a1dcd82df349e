"""Owns: what `torch.cuda.nvtx` and `torch.cuda.profiler` are inside a migration.

Scripts mark their phases with them for NVIDIA's profilers. Here marks are ranges of PyTorch's
profiler, which shows them beside flagos' work; what would switch NVIDIA's profiler on does nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from torch.profiler import record_function

__all__ = ["MODULES"]

_here = threading.local()
_started: dict[int, Any] = {}  # by range_start's number; a range may end in another thread
_numbers = itertools.count(1)


def _stack() -> list[Any]:
    if not hasattr(_here, "ranges"):
        _here.ranges = []
    ranges: list[Any] = _here.ranges
    return ranges


def _begun(message: object) -> Any:
    began = record_function(str(message))
    began.__enter__()
    return began


def range_push(msg: object) -> int:
    """Begins a range inside of the one that is open in this thread; its depth, 0 for the first."""
    _stack().append(_begun(msg))
    return len(_stack()) - 1


def range_pop() -> int:
    """Ends the range begun last in this thread; its depth, -1 where none is open."""
    if not _stack():
        return -1
    _stack().pop().__exit__(None, None, None)
    return len(_stack())


def range_start(msg: object) -> int:
    """Begins a range that `range_end` ends, by its number."""
    number = next(_numbers)
    _started[number] = _begun(msg)
    return number


def range_end(range_id: int) -> None:
    """Ends a range of `range_start`; a number that is none is passed over."""
    if began := _started.pop(range_id, None):
        began.__exit__(None, None, None)


def mark(msg: object) -> None:
    """A range without length."""
    _begun(msg).__exit__(None, None, None)


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A range around a block; the message is formatted with the arguments."""
    with record_function(msg.format(*args, **kwargs)):
        yield


def start() -> None:
    """Nothing: NVIDIA's profiler sees no flagos."""


def stop() -> None:
    """Nothing, as `start`."""


@contextlib.contextmanager
def profile() -> Iterator[None]:
    """A block between `start` and `stop`."""
    yield


def _module(name: str, *functions: Any) -> ModuleType:
    module = ModuleType(f"torch.cuda.{name}")
    for function in functions:
        setattr(module, function.__name__, function)
    return module


MODULES = {
    "nvtx": _module("nvtx", range_push, range_pop, range_start, range_end, mark, range),
    "profiler": _module("profiler", start, stop, profile),
}
"""By their names in torch.cuda."""
