"""Owns: reading routes from files, and what one file may include.

An included file lies in the folder of the file that includes it, or below, after symbolic links are
followed: a file of routes from a wheel reads nothing but that wheel's own. No file is read twice.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Final

from torch_fl.routing.errors import Location, RouteError, nearest, quoted
from torch_fl.routing.grammar import Entry, Include, Words, statements

LARGEST: Final = 2**20
"""Bytes of a file, at most. A line for every operator of PyTorch is less than a tenth of that."""

DEEPEST: Final = 8
"""Files that may include one another in a row, below the first."""


def load(path: str | os.PathLike[str], *, words: Words) -> tuple[Entry, ...]:
    """The entries of a file, with those of the files that it includes in their places.

    Raises:
        RouteError: at the first mistake, or for a file that cannot be read.
    """
    file = os.fspath(path)
    try:
        real = os.path.realpath(file, strict=True)
        text = _read(real, file)
    except (OSError, ValueError) as error:
        if isinstance(error, RouteError):
            raise
        raise RouteError(f"cannot be read: {_reason(error)}", Location(file)) from error
    return tuple(_Loading(words).entries(text, file, (real,)))


class _Loading:
    """One call of `load`: which files it has come across."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._included: dict[str, Location] = {}

    def entries(self, text: str, file: str, path: tuple[str, ...]) -> Iterator[Entry]:
        """`path`: the real names of the files that led here, and at its end this one's own."""
        for statement in statements(text, file, words=self._words):
            if isinstance(statement, Include):
                yield from self._include(statement, path)
            else:
                yield statement

    def _include(self, include: Include, path: tuple[str, ...]) -> Iterator[Entry]:
        folder = os.path.dirname(path[-1])
        file = os.path.join(folder, include.name)
        if not include.name or os.path.isabs(include.name):
            raise _error(include, "is not a relative path")
        try:
            real = os.path.realpath(file, strict=True)
        except OSError as error:
            guess = _neighbour(include.name, folder)
            raise _error(include, f"cannot be read: {_reason(error)}", guess) from error
        if os.path.commonpath([folder, real]) != folder:
            raise _error(include, f"leads out of the folder {quoted(folder)}")
        if real in path:
            circle = " -> ".join(map(os.path.basename, (*path[path.index(real) :], real)))
            raise _error(include, f"includes itself: {circle}")
        if (place := self._included.setdefault(real, include.location)) is not include.location:
            raise _error(include, f"is included already, by {place}")
        if len(path) > DEEPEST:
            raise _error(include, f"is included by more than {DEEPEST} files in a row")
        try:
            text = _read(real, file)
        except OSError as error:
            raise _error(include, f"cannot be read: {_reason(error)}") from error
        yield from self.entries(text, file, (*path, real))


def _read(real: str, file: str) -> str:
    """Raises OSError for what is no readable file of a reasonable size, RouteError for a file that
    is not UTF-8."""
    mode = os.stat(real).st_mode  # before it is opened: opening a device may do something
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe, a socket or a device"
        raise OSError(f"it is {kind}, not a file")
    # Should a pipe have come into its place since, opening does not wait for a writer.
    with open(os.open(real, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
        data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise OSError(f"it is larger than {LARGEST // 2**20} MiB, the most that routes may take")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _not_utf8(error, data, file) from error


def _not_utf8(error: UnicodeDecodeError, data: bytes, file: str) -> RouteError:
    start = data.rfind(b"\n", 0, error.start) + 1
    end = data.find(b"\n", start)
    line = data[start : end if end >= 0 else len(data)].decode(errors="replace")
    column = len(data[start : error.start].decode())
    if start == 0 and line.startswith("\ufeff"):
        line, column = line[1:], column - 1
    location = Location(file, data.count(b"\n", 0, start) + 1, column + 1)
    return RouteError(
        f"byte 0x{data[error.start]:02x} is not UTF-8", location, line, column, "text in UTF-8"
    )


def _error(include: Include, problem: str, guess: str | None = None) -> RouteError:
    return RouteError(
        f"{quoted(include.name)} {problem}",
        include.location,
        include.text,
        include.caret,
        "the name of a file in this file's folder",
        guess,
    )


def _neighbour(name: str, folder: str) -> str | None:
    try:
        return nearest(name, os.listdir(folder))
    except OSError:  # a folder may be open to those only who know the names in it
        return None


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
