"""Owns: calling a function that may never return."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class TimeLimitError(Exception):
    """The function had not returned in time. `where` is the place that it had come to."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.where = where


def call(function: Callable[[], Result], seconds: float) -> Result:
    """What `function` returns or raises; TimeLimitError when that takes longer than `seconds`.

    It runs in a daemon thread, the only thing that can be left behind: it is, when time is up, and
    does not keep the process from ending. An import inside it may wait for one that the calling
    thread is in the middle of.
    """
    work = _Work(function)
    thread = threading.Thread(target=work, name="torch_fl time limit", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeLimitError(_place(thread))
    if work.error is not None:
        raise work.error
    return work.results[0]


class _Work(Generic[Result]):
    def __init__(self, function: Callable[[], Result]) -> None:
        self.function = function
        self.results: list[Result] = []
        self.error: BaseException | None = None

    def __call__(self) -> None:
        try:
            self.results.append(self.function())
        except BaseException as error:  # it is raised where the caller is
            self.error = error


def _place(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    stack = traceback.extract_stack(frame) if frame else []
    written = [entry for entry in stack if not entry.filename.startswith("<")]  # not importlib's
    if not written:
        return "an unknown place"
    last = written[-1]
    return f"{last.filename}:{last.lineno}, in {last.name}"
