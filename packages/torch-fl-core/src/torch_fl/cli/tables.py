"""Owns: how commands print facts and tables: for people on a terminal, for programs elsewhere.

A terminal gets tables that fit its width, in colours unless NO_COLOR is set. Anything else gets
aligned text, one row a line and nothing cut, which grep and awk can read from release to release.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_GAP = "  "
_NARROW = 60  # columns of a terminal below which a table is printed row by row
_STYLES = {
    "ok": "green",
    "chosen": "green",
    "warning": "yellow",
    "FAILED": "bold red",
    "not tried": "dim",
}


class Page:
    """What a command prints, on standard output by default."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._console = _console(self._stream)
        self._empty = True

    def heading(self, text: str) -> None:
        """Begins a part of the page."""
        if not self._empty:
            self.text("")
        self.text(text, style="bold")

    def text(self, text: str, style: str = "") -> None:
        """Lines as they are; a terminal wraps them."""
        self._empty = False
        if self._console is None:
            self._stream.write(f"{_printable(text)}\n")
            return
        from rich.text import Text

        self._console.print(Text(_printable(text), style=style), soft_wrap=True)

    def facts(self, facts: Iterable[tuple[str, object]]) -> None:
        """Names and what is known of them, below a heading."""
        self._rows([(name, str(value)) for name, value in facts], indent=True)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Rows below their columns' names. A cell that names a state has that state's colour."""
        cells = [[str(cell) for cell in row] for row in rows]
        if self._console is None:
            self._rows([tuple(columns), *cells])
        elif self._console.width < _NARROW:
            for row in cells:
                self.facts(zip(columns, row, strict=True))
                self.text("")
        else:
            self._empty = False
            _print_table(self._console, columns, cells)

    def _rows(self, rows: Sequence[Sequence[str]], indent: bool = False) -> None:
        if not rows:
            return
        if self._console is None:
            for line in aligned(rows):
                self.text(f"{_GAP if indent else ''}{line}")
            return
        from rich.table import Table

        self._empty = False
        grid = Table.grid(padding=(0, len(_GAP)))
        grid.add_column(no_wrap=True)
        for row in rows:  # the gap after an empty column indents
            grid.add_row(*([""] if indent else []), *map(_cell, row))
        self._console.print(grid)


@contextlib.contextmanager
def others_on_stderr() -> Iterator[None]:
    """What plugins and PyTorch print must not come among what a command prints."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def print_json(value: object) -> None:
    """`value` on standard output; what JSON has no word for, as text."""
    print(json.dumps(value, indent=2, default=str))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """One line for each row. The last column is neither filled up nor cut."""
    flat = [[_one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in list(zip(*flat, strict=True))[:-1]]
    return [
        _GAP.join([*(f"{c:<{w}}" for c, w in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in flat
    ]


def size(number: int) -> str:
    """Bytes, for people: "1.5 GiB"."""
    value, unit = float(number), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.1f} {unit}" if unit != "B" else f"{number} B"


def waiting(stream: TextIO | None = None) -> Callable[[str], None]:
    """A function that says on a terminal what is being waited for; "" takes it away again."""
    stream = sys.stderr if stream is None else stream
    if not _is_terminal(stream):
        return lambda text: None

    def say(text: str) -> None:
        stream.write(f"\r\033[K{text}")
        stream.flush()

    return say


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _console(stream: TextIO) -> Console | None:
    if not _is_terminal(stream):
        return None
    try:
        from rich.console import Console
    except ImportError:  # the doctor must also help where packages are missing
        return None
    return Console(file=stream, highlight=False, markup=False, emoji=False)


def _print_table(console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(_cell, row))
    console.print(table)


def _cell(text: str) -> Text:
    from rich.text import Text

    return Text(_printable(text), style=_STYLES.get(text, ""))


def _one_line(text: str) -> str:
    return _printable(" ".join(text.split()))


def _printable(text: str) -> str:
    """Without what could move a cursor or change colours: texts come from plugins and files."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text.expandtabs(4))
