"""Owns: reading one line of routes word by word, and pointing at what does not belong there."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from torch_fl.routing.errors import Location, RouteError, quoted

_WORD: Final = re.compile(r'[^ \t,=\[\]"#]+')
_BLANKS: Final = re.compile(r"[ \t]*")
# What an editor may show as the end of a line, as nothing, or in another place: a reader could not
# see what the parser sees, not even in a comment.
_INVISIBLE: Final = re.compile("[\0-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class Scanner:
    """A line, and how far it has been read.

    With `comments`, `#` outside of quotes ends the line. Blanks between words mean nothing.
    """

    def __init__(
        self, source: str, file: str, line: int = 1, *, start: int = 0, comments: bool = False
    ) -> None:
        self._source = source
        self._file = file
        self._line = line
        self._comments = comments
        if found := _INVISIBLE.search(source):
            character = found.group()
            raise self.error(f"control character U+{ord(character):04X}", found.start())
        self._move_to(start)

    @property
    def position(self) -> int:
        """Index of the next character that is not a blank."""
        return self._position

    @property
    def ended(self) -> bool:
        """Whether nothing but a comment is left."""
        rest = self._source[self._position : self._position + 1]
        return not rest or (self._comments and rest == "#")

    def since(self, start: int) -> str:
        """What was read from index `start` on, without blanks behind it."""
        return self._source[start : self._position].rstrip(" \t")

    def location(self, at: int) -> Location:
        """The place of index `at`."""
        return Location(self._file, self._line, at + 1)

    def error(
        self, problem: str, at: int, expected: str = "", nearest: str | None = None
    ) -> RouteError:
        """The error for a mistake at index `at`."""
        return RouteError(problem, self.location(at), self._source, at, expected, nearest)

    def accept(self, symbol: str) -> bool:
        """Reads `symbol`, if it is next."""
        found = self._source.startswith(symbol, self._position)
        if found:
            self._move_to(self._position + len(symbol))
        return found

    def expect(self, symbol: str, expected: str) -> None:
        """Reads `symbol`. Raises RouteError when something else is next."""
        if not self.accept(symbol):
            raise self._unexpected(expected)

    def word(self, expected: str) -> str:
        """Reads a word, up to a blank or one of , = [ ] " #. Raises RouteError when none is next,
        or when it has a character that is not ASCII."""
        found = _WORD.match(self._source, self._position)
        if found is None:
            raise self._unexpected(expected)
        word = found.group()
        if not word.isascii():
            strange = next(index for index, character in enumerate(word) if not character.isascii())
            raise self._not_ascii(found.start() + strange, expected)
        self._move_to(found.end())
        return word

    def quotation(self, expected: str) -> str:
        """Reads a text in double quotes. It has no escapes. Raises RouteError when none is next."""
        start = self._position
        if not self._source.startswith('"', start):
            raise self._unexpected(expected)
        end = self._source.find('"', start + 1)
        if end < 0:
            raise self.error("this quote is not closed", start, expected)
        self._move_to(end + 1)
        return self._source[start + 1 : end]

    def end(self, expected: str) -> None:
        """Raises RouteError when anything is left."""
        if not self.ended:
            raise self._unexpected(expected)

    def _move_to(self, position: int) -> None:
        blanks = _BLANKS.match(self._source, position)
        assert blanks is not None  # it matches nothing, too
        self._position = blanks.end()

    def _unexpected(self, expected: str) -> RouteError:
        at = self._position
        if self.ended:
            return self.error("the line ends too early", at, expected)
        if not self._source[at].isascii():
            return self._not_ascii(at, expected)
        word = _WORD.match(self._source, at)
        found = word.group() if word else self._source[at]
        return self.error(f"unexpected {quoted(found)}", at, expected)

    def _not_ascii(self, at: int, expected: str) -> RouteError:
        character = self._source[at]
        name = unicodedata.name(character, "without a name")
        plain = unicodedata.normalize("NFKC", character)
        return self.error(
            f"{character!r} is not ASCII: U+{ord(character):04X} {name}",
            at,
            expected,
            plain if plain.isascii() else None,
        )
