"""Owns: the language of routes: its words, its statements, and how they read back as text.

    mm = native, flaggems, composite, cpu     # a chain: the next one runs when one cannot
    add.Tensor[int64, bool] = cpu             # for these dtypes only
    _foreach_* = composite                    # wildcards: * and ?
    default = boxing, cpu                     # for what nothing else names
    include "more.conf"                       # see files.py

Parsing touches no file and knows no operator: whether they exist is `table.Table.check`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from torch_fl.routing.errors import Location, RouteError, alternatives, nearest, quoted
from torch_fl.routing.scanner import Scanner

DEFAULT: Final = "default"
INCLUDE: Final = "include"
NAMESPACE: Final = "aten::"
"""Meant where a name has no namespace."""

ROUTES: Final = ("boxing", "native", "flaggems", "composite", "cpu")
"""The routes that every backend may have."""

Words = Mapping[str, str]
"""The words for routes, and the route that each means."""

_DTYPES: Final = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("float4_e2m1fn_x2", "quint8", "qint8", "qint32", "quint4x2", "quint2x4"),
    *("bits1x8", "bits2x4", "bits4x2", "bits8", "bits16"),
    *(f"{sign}int{bits}" for sign in ("u", "") for bits in range(1, 8)),
)
_DTYPE_ALIASES: Final = {
    "byte": "uint8",
    "char": "int8",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "chalf": "complex32",
    "cfloat": "complex64",
    "cdouble": "complex128",
    "bit": "uint1",
}
DTYPES: Final[Mapping[str, str]] = {**{name: name for name in _DTYPES}, **_DTYPE_ALIASES}
"""The words for dtypes, and the name that PyTorch prints for each."""

_LINE_END: Final = re.compile(r"\r?\n")
_OPERATOR: Final = re.compile(r"(?:[\w*?]+::)?[\w*?]+(?:\.[\w*?]+)?", re.ASCII)
_ROUTE_WORD: Final = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)

_AN_OPERATOR: Final = "an operator such as mm, add.Tensor or _foreach_*"
_A_STATEMENT: Final = f"{_AN_OPERATOR}, or {DEFAULT!r} or {INCLUDE!r}"
_A_DTYPE: Final = "a dtype such as int64, float32 or bfloat16"
_A_PATH: Final = "a file name in double quotes"


@dataclass(frozen=True)
class Entry:
    """One statement: the operators that `pattern` matches take the routes of `chain`, in turn.

    `pattern` has its namespace ("aten::add.Tensor"), or is "default". `dtypes` are the names that
    PyTorch prints, None for all. `chain` has the meanings of the words that were written. Two
    entries are equal that say the same, wherever it was.
    """

    pattern: str
    dtypes: frozenset[str] | None
    chain: tuple[str, ...]
    location: Location = field(compare=False)
    text: str = field(compare=False)


@dataclass(frozen=True)
class Include:
    """The statement that asks for the entries of another file. `caret`: of the name in `text`."""

    name: str
    location: Location
    text: str
    caret: int


def vocabulary(aliases: Words | None = None, providers: Iterable[str] = ()) -> Words:
    """The words that a chain may use.

    Args:
        aliases: further words for routes, such as {"host": "boxing"}.
        providers: routes that were registered by name; each is a word for itself.

    Raises:
        ValueError: a word that could not be written in a chain, or with two meanings, or an alias
            of a route that there is not.
    """
    words = {route: route for route in ROUTES}
    for name in providers:
        if name in ROUTES:
            raise ValueError(f"{name!r} is a route that every backend may have; use another name.")
        words[name] = name
    for word, route in [*words.items(), *(aliases or {}).items()]:
        if not _ROUTE_WORD.fullmatch(word):
            raise ValueError(
                f"{quoted(word)} cannot be the name of a route: use letters, digits, '_', '-' "
                f"and '.', a letter first."
            )
        if words.setdefault(word, route) != route:
            raise ValueError(f"{word!r} cannot mean {route!r}: it means {words[word]!r} already.")
    for word, route in words.items():
        if words.get(route) != route:
            raise ValueError(f"{word!r} cannot mean {route!r}: there is no such route.")
    return words


def parse(text: str, file: str, *, words: Words) -> tuple[Entry, ...]:
    """The entries of a text that includes nothing. `file` is what errors call it.

    Raises:
        RouteError: at the first mistake.
    """
    entries = []
    for statement in statements(text, file, words=words):
        if isinstance(statement, Include):
            raise RouteError(
                "only a file can include another one",
                statement.location,
                statement.text,
                statement.caret,
            )
        entries.append(statement)
    return tuple(entries)


def statements(text: str, file: str, *, words: Words) -> Iterator[Entry | Include]:
    """The statements of a text, in order. Raises RouteError on arriving at a mistake."""
    first: dict[tuple[str, frozenset[str] | None], Location] = {}
    for number, source in enumerate(_LINE_END.split(text.removeprefix("\ufeff")), 1):
        line = Scanner(source, file, number, comments=True)
        if line.ended:
            continue
        statement = _statement(line, words)
        if isinstance(statement, Entry):
            place = first.setdefault((statement.pattern, statement.dtypes), statement.location)
            if place is not statement.location:
                raise line.error(
                    f"{quoted(_heading(statement))} is routed twice, first in line {place.line}",
                    statement.location.column - 1,
                    "one statement for the same operators and dtypes",
                )
        yield statement


def parse_entry(pattern: str, chain: str | Iterable[str], file: str, *, words: Words) -> Entry:
    """The entry of an operator, perhaps with dtypes ("add[int64]"), and a chain ("native, cpu").

    Raises:
        RouteError: either is not understood. `file` is what the error calls their source.
    """
    routes = chain if isinstance(chain, str) else ", ".join(chain)
    line = Scanner(f"{pattern} = {routes}", file)
    entry = _statement(line, words)
    if isinstance(entry, Include):
        raise line.error("only a file can include another one", 0, _AN_OPERATOR)
    return entry


def parse_chain(text: str, file: str, *, words: Words, start: int = 0) -> tuple[str, ...]:
    """The routes of a chain: all of `text` from index `start` on. Raises RouteError."""
    return _chain(Scanner(text, file, start=start), words)


def unparse(entries: Iterable[Entry]) -> str:
    """A text from which `parse` reads the same entries, one a line.

    The chains name routes by their own words, so any vocabulary that has those will do.
    """
    return "".join(f"{_heading(entry)} = {', '.join(entry.chain)}\n" for entry in entries)


def short(pattern: str) -> str:
    """An operator or pattern as people write it: without the namespace that is meant anyway."""
    name = pattern.removeprefix(NAMESPACE)
    return pattern if name in (DEFAULT, INCLUDE) else name


def _heading(entry: Entry) -> str:
    dtypes = "" if entry.dtypes is None else f"[{', '.join(sorted(entry.dtypes))}]"
    return short(entry.pattern) + dtypes


def _statement(line: Scanner, words: Words) -> Entry | Include:
    start = line.position
    word = line.word(_A_STATEMENT)
    if word == INCLUDE:
        return _include(line, start)
    pattern = word if word == DEFAULT else _pattern(line, word, start)
    dtypes = _dtypes(line)
    line.expect("=", "'=' and a chain of routes")
    chain = _chain(line, words)
    return Entry(pattern, dtypes, chain, line.location(start), line.since(start))


def _include(line: Scanner, start: int) -> Include:
    at = line.position
    name = line.quotation(_A_PATH)
    line.end("the end of the line")
    return Include(name, line.location(at), line.since(start), at - start)


def _pattern(line: Scanner, word: str, start: int) -> str:
    found = _OPERATOR.match(word)
    valid = found.end() if found else 0
    if valid < len(word):
        raise line.error(f"{quoted(word)} is not an operator's name", start + valid, _AN_OPERATOR)
    return word if "::" in word else NAMESPACE + word


def _dtypes(line: Scanner) -> frozenset[str] | None:
    if not line.accept("["):
        return None
    dtypes = _list(line, "dtype", DTYPES, _A_DTYPE)
    line.expect("]", "',' or ']'")
    return frozenset(dtypes)


def _chain(line: Scanner, words: Words) -> tuple[str, ...]:
    # (Functions that were set as routes have words too, which nobody writes.)
    shown = [word for word in words if not word.startswith("python.")]
    chain = _list(line, "route", words, alternatives(shown))
    line.end("',' and a route, or the end of the line")
    return chain


def _list(line: Scanner, kind: str, words: Words, expected: str) -> tuple[str, ...]:
    """Words with commas between them, at least one, none twice; returns what they mean."""
    written: dict[str, str] = {}
    while True:
        at = line.position
        word = line.word(expected)
        meaning = words.get(word)
        if meaning is None:
            raise line.error(f"unknown {kind} {quoted(word)}", at, expected, nearest(word, words))
        if meaning in written:
            same = "" if written[meaning] == word else f", as {written[meaning]!r}"
            raise line.error(f"{word!r} is already named{same}", at, f"each {kind} once")
        written[meaning] = word
        if not line.accept(","):
            return tuple(written)
