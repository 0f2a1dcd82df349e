"""Owns: texts of routes, right and wrong, for property tests; and an oracle of what is right."""

from __future__ import annotations

import re

from hypothesis import strategies as st

from torch_fl.routing.errors import Location
from torch_fl.routing.grammar import DTYPES, ROUTES, Entry, vocabulary

WORDS = vocabulary({"host": "boxing"}, ["mine"])
CHAIN_WORDS = (*ROUTES, "mine")

_NAMES = st.from_regex(r"\A[a-z_*?][a-z0-9_*?]{0,8}\Z").filter(
    lambda name: name not in ("default", "include")
)
PATTERNS = st.one_of(
    st.just("default"),
    st.builds(
        lambda space, name, overload: f"{space}::{name}" + (f".{overload}" if overload else ""),
        st.sampled_from(["aten", "aten", "prims", "*"]),
        _NAMES,
        st.none() | _NAMES,
    ),
)
ENTRIES = st.builds(
    Entry,
    PATTERNS,
    st.none() | st.frozensets(st.sampled_from(sorted(set(DTYPES.values()))), min_size=1),
    st.permutations(CHAIN_WORDS).flatmap(
        lambda order: st.integers(1, len(order)).map(lambda count: tuple(order[:count]))
    ),
    st.just(Location("x", 1, 1)),
    st.just(""),
)
FILES = st.lists(ENTRIES, max_size=8, unique_by=lambda entry: (entry.pattern, entry.dtypes))

_PIECES = st.sampled_from(
    [
        *("mm", "add.Tensor", "aten::", "::", "_foreach_*", "default", "include", "?", "."),
        *(" = ", "=", ", ", ",", "[", "]", "[int64]", "[long, bool]", "#", '"', '"x.conf"'),
        *("cpu", "native", "boxing", "host", "mine", "cpu, native", "mm = cpu"),
        *(" ", "\t", "\n", "\r\n", "\r", "\0", "\f", "\v", "\x85", "\u2028", "\u00a0", "\ufeff"),
        *("\uff1d", "\u043c", "\u202e", "\ud800", "\U0001f600", "\u0301", "'", "\\", "-", "/"),
    ]
)
_SOUPS = st.lists(_PIECES | st.characters(), max_size=30).map("".join)


@st.composite
def _nearly_right(draw: st.DrawFn) -> str:
    """A right text in which a few characters were taken out, put in or doubled."""
    text = "".join(f"{heading(entry)} = {', '.join(entry.chain)}\n" for entry in draw(FILES))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(_PIECES | st.just("")) + text[at + draw(st.integers(0, 2)) :]
    return text


TEXTS = st.one_of(st.text(max_size=200), _SOUPS, _nearly_right())


def heading(entry: Entry) -> str:
    """What stands before the "=" of an entry."""
    dtypes = "" if entry.dtypes is None else f"[{', '.join(entry.dtypes)}]"
    return entry.pattern + dtypes


_NAME = r"(?:[\w*?]+::)?[\w*?]+(?:\.[\w*?]+)?"
_DTYPES, _CHAIN = (rf"[ \t]*(?:{word}[ \t]*,[ \t]*)*{word}[ \t]*" for word in (r"\w+", r"[\w.-]+"))
_RIGHT = re.compile(
    rf"[ \t]*(?P<pattern>default(?![\w.:*?])|(?!include[ \t]*[\[=]){_NAME})"
    rf"[ \t]*(?:\[(?P<dtypes>{_DTYPES})\])?[ \t]*=(?P<chain>{_CHAIN})(?:#.*)?",
    re.ASCII,
)


def is_right(text: str) -> bool:
    """Whether a text is in the language, told without the parser. A text that includes is not."""
    seen = set()
    for line in text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n"):
        if any(c != "\t" and (ord(c) < 32 or 0x7F <= ord(c) < 0xA0) for c in line):
            return False
        if set(line) & set("\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"):
            return False
        if not line.strip(" \t") or line.lstrip(" \t").startswith("#"):
            continue
        match = _RIGHT.fullmatch(line)
        if match is None:
            return False
        chain = [WORDS.get(word.strip()) for word in match["chain"].split(",")]
        dtypes = [DTYPES.get(word.strip()) for word in (match["dtypes"] or "bool").split(",")]
        for items in (chain, dtypes):
            if None in items or len(set(items)) < len(items):
                return False
        pattern = match["pattern"]
        if "::" not in pattern and pattern != "default":
            pattern = f"aten::{pattern}"
        key = (pattern, match["dtypes"] and frozenset(dtypes))
        if key in seen:
            return False
        seen.add(key)
    return True
