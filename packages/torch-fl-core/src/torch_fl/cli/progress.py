"""Owns: the progress bar of the command line: one line redrawn on a terminal, else plain lines."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import TextIO

    from typing_extensions import Self

_BAR_WIDTH = 30
_REDRAW_S = 0.1  # often enough to look alive, rarely enough to cost nothing
_PLAIN_LINES = 10  # a log gets about this many


def _is_interactive(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("CI", "").lower() not in ("1", "true", "yes")


class Progress:
    """Shows how much of `total` steps is done; use it in a `with` statement.

    Args:
        total: number of steps, at least 1.
        stream: where to write; standard output by default.
        interactive: redraw one line; by default when `stream` is a terminal and CI is not set.
    """

    def __init__(
        self, total: int, stream: TextIO | None = None, interactive: bool | None = None
    ) -> None:
        if total < 1:
            raise ValueError(f"total must be at least 1, but got {total}")
        self._total = total
        self._stream = sys.stdout if stream is None else stream
        self._interactive = _is_interactive(self._stream) if interactive is None else interactive
        self._drawn_at = 0.0
        self._lines = 0
        self._width = 0

    def update(self, done: int, text: str = "") -> None:
        """Say that `done` steps are complete, with a few words on the state of the work."""
        share = min(done / self._total, 1.0)
        if not self._interactive:
            if int(share * _PLAIN_LINES) > self._lines or done == self._total:
                self._lines = int(share * _PLAIN_LINES)
                self._write(f"{share:4.0%}  {text}\n")
            return
        now = time.monotonic()
        if now - self._drawn_at < _REDRAW_S and done < self._total:
            return
        self._drawn_at = now
        bar = "#" * round(share * _BAR_WIDTH)
        line = f"[{bar:<{_BAR_WIDTH}}] {share:4.0%}  {text}"
        line = line[: shutil.get_terminal_size().columns - 1]  # a wrapped line cannot be redrawn
        self._write("\r" + line.ljust(self._width))
        self._width = len(line)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._width:
            self._write("\n")
