"""Owns: how a mistake in a route is told: where it stands, what was expected, the nearest word."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_SHOWN: Final = 96  # characters of a long line that are shown around the mistake
_LONGEST_GUESS: Final = 80  # comparing words takes time in the square of their length


@dataclass(frozen=True)
class Location:
    """A place in a file, or in whatever `file` names instead.

    `line` and `column` count from 1, columns in characters, a tab as one. Line 0 is the whole file.
    """

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        file = printable(self.file)
        return f"{file}:{self.line}:{self.column}" if self.line else file


class RouteError(ValueError):
    """A route that cannot be understood or cannot be followed.

    Its text is complete: location, problem, the line with a caret below the place, what was
    expected, the nearest word.

    Args:
        problem: what is wrong, without a full stop.
        location: where.
        source: the text to show, empty for none.
        caret: index in `source` of the character to point at.
        expected: what could stand there.
        nearest: the valid word that is most like the one found.
    """

    def __init__(
        self,
        problem: str,
        location: Location,
        source: str = "",
        caret: int = 0,
        expected: str = "",
        nearest: str | None = None,
    ) -> None:
        super().__init__(problem, location, source, caret, expected, nearest)  # so it pickles
        self.problem = problem
        self.location = location
        self.source = source
        self.caret = caret
        self.expected = expected
        self.nearest = nearest

    def __str__(self) -> str:
        hints = []
        if self.expected:
            hints.append(f"expected {self.expected}")
        if self.nearest is not None:
            hints.append(f"did you mean {self.nearest!r}?")
        lines = [f"{self.location}: {printable(self.problem)}"]
        if self.source:
            lines += _excerpt(self.source, self.caret)
        if hints:
            lines.append("; ".join(hints))
        return "\n".join(lines)


def printable(text: str) -> str:
    """`text`, each character that has no glyph of its own replaced, so that it prints anywhere."""
    return "".join(c if c.isprintable() else " " if c == "\t" else "\ufffd" for c in text)


def quoted(word: str) -> str:
    """`word` in quotes and escaped, cut when it is long."""
    return repr(word) if len(word) <= _SHOWN else repr(word[:_SHOWN]) + "..."


def alternatives(words: Iterable[str]) -> str:
    """`words` as "a, b or c"."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The one of `words` that is most like `word`, whatever its case, if any is like it."""
    if len(word) > _LONGEST_GUESS:
        return None
    word, folded = word.lower(), {candidate.lower(): candidate for candidate in words}
    swapped = [candidate for candidate in folded if sorted(candidate) == sorted(word)]
    close = swapped or difflib.get_close_matches(word, folded, 1)
    return folded[close[0]] if close else None


def _excerpt(source: str, caret: int) -> tuple[str, str]:
    start = max(0, min(caret - _SHOWN // 2, len(source) - _SHOWN))
    before = "..." if start else ""
    after = "..." if start + _SHOWN < len(source) else ""
    return (
        f"    {before}{printable(source[start : start + _SHOWN])}{after}",
        " " * (4 + len(before) + caret - start) + "^",
    )
