"""Owns: tests of the language of routes: what is read from a text, and what errors point at."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from route_texts import FILES, TEXTS, WORDS, heading, is_right

from torch_fl.routing import grammar
from torch_fl.routing.errors import Location, RouteError
from torch_fl.routing.grammar import (
    DTYPES,
    Entry,
    parse,
    parse_chain,
    parse_entry,
    unparse,
    vocabulary,
)


def _one(text: str) -> Entry:
    (entry,) = parse(text, "routes.conf", words=WORDS)
    return entry


def _error(text: str) -> RouteError:
    with pytest.raises(RouteError) as caught:
        parse(text, "routes.conf", words=WORDS)
    return caught.value


def test_a_statement() -> None:
    entry = _one("\n  mm = native, flaggems,composite , cpu  # the usual\n")
    assert entry.pattern == "aten::mm"
    assert entry.dtypes is None
    assert entry.chain == ("native", "flaggems", "composite", "cpu")
    assert entry.location == Location("routes.conf", 2, 3)
    assert entry.text == "mm = native, flaggems,composite , cpu"


@pytest.mark.parametrize(
    ("written", "pattern"),
    [
        ("mm", "aten::mm"),
        ("aten::mm", "aten::mm"),
        ("add.Tensor", "aten::add.Tensor"),
        ("mm.default", "aten::mm.default"),
        ("prims::mul", "prims::mul"),
        ("_foreach_*", "aten::_foreach_*"),
        ("*::mm?.*out", "*::mm?.*out"),
        ("*", "aten::*"),
        ("__and__.Scalar", "aten::__and__.Scalar"),
        ("default", "default"),
        ("aten::default", "aten::default"),
        ("default.out", "aten::default.out"),
        ("aten::include", "aten::include"),
    ],
)
def test_patterns(written: str, pattern: str) -> None:
    entry = _one(f"{written} = cpu")
    assert entry.pattern == pattern
    assert _one(unparse([entry])) == entry


def test_dtypes() -> None:
    assert _one("mm[int64]=cpu").dtypes == frozenset(["int64"])
    assert _one("mm [ long , float,half ] = cpu").dtypes == frozenset(
        ["int64", "float32", "float16"]
    )
    assert _one("default[double] = cpu").dtypes == frozenset(["float64"])


def test_every_dtype_of_torch_has_a_word() -> None:
    names = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}
    known = {name: f"torch.{DTYPES.get(name)}" for name in names}
    assert known == {name: str(dtype) for name, dtype in names.items()}


def test_an_alias_is_the_route_that_it_means() -> None:
    entry = _one("mm = host, mine")
    assert entry.chain == ("boxing", "mine")
    assert entry == _one("aten::mm=boxing,mine")


@pytest.mark.parametrize("end", ["\n", "\r\n", " \t\n", "#\r\n", ""])
def test_lines_may_end_in_many_ways(end: str) -> None:
    entries = parse(f"\ufeff# head\n\n\tmm = cpu{end}", "x", words=WORDS)
    assert [(entry.pattern, entry.location.column) for entry in entries] == [("aten::mm", 2)]


def test_a_byte_order_mark_is_no_column() -> None:
    assert _one("\ufeffmm = cpu").location.column == 1


@pytest.mark.parametrize(
    ("text", "line", "column", "problem", "nearest"),
    [
        ("mm = natve, cpu", 1, 6, "unknown route 'natve'", "native"),
        ("mm = CPU", 1, 6, "unknown route 'CPU'", "cpu"),
        ("mm[int46] = cpu", 1, 4, "unknown dtype 'int46'", "int64"),
        ("mm[torch.int64] = cpu", 1, 4, "unknown dtype 'torch.int64'", "int64"),
        ("mm cpu", 1, 4, "unexpected 'cpu'", None),
        ("mm", 1, 3, "the line ends too early", None),
        ("mm =", 1, 5, "the line ends too early", None),
        ("mm = # cpu", 1, 6, "the line ends too early", None),
        ("mm == cpu", 1, 5, "unexpected '='", None),
        ("mm = cpu = native", 1, 10, "unexpected '='", None),
        ("= cpu", 1, 1, "unexpected '='", None),
        ("mm = cpu,", 1, 10, "the line ends too early", None),
        ("mm = ,cpu", 1, 6, "unexpected ','", None),
        ("mm = cpu,,native", 1, 10, "unexpected ','", None),
        ("\tmm\t=\tcpu native", 1, 11, "unexpected 'native'", None),
        ("mm[] = cpu", 1, 4, "unexpected ']'", None),
        ("mm[int64 = cpu", 1, 10, "unexpected '='", None),
        ("mm[int64,] = cpu", 1, 10, "unexpected ']'", None),
        ("mm[[int64]] = cpu", 1, 4, "unexpected '['", None),
        ("mm] = cpu", 1, 3, "unexpected ']'", None),
        ("mm[int64, long] = cpu", 1, 11, "'long' is already named, as 'int64'", None),
        ("mm = cpu, native, cpu", 1, 19, "'cpu' is already named", None),
        ("mm = host, boxing", 1, 12, "'boxing' is already named, as 'host'", None),
        ("a..b = cpu", 1, 2, "'a..b' is not an operator's name", None),
        ("aten:mm = cpu", 1, 5, "'aten:mm' is not an operator's name", None),
        ("a::b::c = cpu", 1, 5, "'a::b::c' is not an operator's name", None),
        ("::mm = cpu", 1, 1, "'::mm' is not an operator's name", None),
        ("mm. = cpu", 1, 3, "'mm.' is not an operator's name", None),
        ("torch.add(x) = cpu", 1, 10, "'torch.add(x)' is not an operator's name", None),
        ('"mm" = cpu', 1, 1, "unexpected '\"'", None),
        ("'mm' = cpu", 1, 1, "\"'mm'\" is not an operator's name", None),
        ("mm = 'cpu'", 1, 6, "unknown route \"'cpu'\"", "cpu"),
        ("include x.conf", 1, 9, "unexpected 'x.conf'", None),
        ("include = cpu", 1, 9, "unexpected '='", None),
        ("include", 1, 8, "the line ends too early", None),
        ('include "x', 1, 9, "this quote is not closed", None),
        ('include "x" "y"', 1, 13, "unexpected '\"'", None),
        ('include "x.conf"', 1, 9, "only a file can include another one", None),
        ("mm＝cpu", 1, 3, "'＝' is not ASCII: U+FF1D FULLWIDTH EQUALS SIGN", "="),  # noqa: RUF001
        ("mm ＝ cpu", 1, 4, "'＝' is not ASCII: U+FF1D FULLWIDTH EQUALS SIGN", "="),  # noqa: RUF001
        ("mm\u00a0= cpu", 1, 3, r"'\xa0' is not ASCII: U+00A0 NO-BREAK SPACE", " "),
        ("м = cpu", 1, 1, "'м' is not ASCII: U+043C CYRILLIC SMALL LETTER EM", None),
        ("mm = cpu\udc80", 1, 9, r"'\udc80' is not ASCII: U+DC80 without a name", None),
        ("mm = cpu\rmm = native", 1, 9, "control character U+000D", None),
        ("mm = cpu\r\r\n", 1, 9, "control character U+000D", None),
        ("# no\rmm = cpu", 1, 5, "control character U+000D", None),
        ("mm\0 = cpu", 1, 3, "control character U+0000", None),
        ("mm = cpu\n\f", 2, 1, "control character U+000C", None),
        ("mm = cpu # \u2028", 1, 12, "control character U+2028", None),
        ("mm = cpu # \u202e", 1, 12, "control character U+202E", None),
        ("mm = cpu\n\nmm = native", 3, 1, "'mm' is routed twice, first in line 1", None),
        (
            "mm[long, int] = cpu\naten::mm[int32,int64] = cpu",
            2,
            1,
            "'mm[int32, int64]' is routed twice, first in line 1",
            None,
        ),
    ],
)
def test_mistakes(text: str, line: int, column: int, problem: str, nearest: str | None) -> None:
    error = _error(text)
    assert (error.problem, error.nearest) == (problem, nearest)
    assert error.location == Location("routes.conf", line, column)


def test_the_text_of_an_error() -> None:
    assert str(_error("# head\nmm =\tnatve, cpu # fast")) == (
        "routes.conf:2:6: unknown route 'natve'\n"
        "    mm = natve, cpu # fast\n"
        "         ^\n"
        "expected boxing, native, flaggems, composite, cpu, mine or host; did you mean 'native'?"
    )


@pytest.mark.parametrize("before", [0, 10, 500, 100_000])
@pytest.mark.parametrize("after", [0, 10, 500, 100_000])
def test_of_a_long_line_the_place_is_shown(before: int, after: int) -> None:
    error = _error("a" * before + "!" + "b" * after + " = cpu")
    _, shown, caret, _ = str(error).splitlines()
    assert shown[caret.index("^")] == "!"
    assert len(shown) <= 120


def test_errors_can_be_sent_between_processes() -> None:
    error = _error("mm = natve")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_broken_text_gives_nothing() -> None:
    assert _error("mm = cpu\nadd = cp").location.line == 2


def test_entry_of_two_arguments() -> None:
    entry = parse_entry("add.Tensor[int64]", ["native", "cpu"], "set()", words=WORDS)
    assert entry == _one("add.Tensor[int64] = native, cpu")
    assert parse_entry("default", "cpu", "set()", words=WORDS).pattern == "default"


@pytest.mark.parametrize(
    ("pattern", "chain", "column"),
    [
        ("mm", "cpu, natve", 11),
        ("mm", "", 6),
        ("mm", [], 6),
        ("", "cpu", 2),
        ("mm = cpu", "native", 10),
        ("mm", "cpu # because", 10),
        ("mm #", "cpu", 4),
        ("mm", "cpu\nadd = cpu", 9),
        ('include "x', 'y"', 1),
    ],
)
def test_arguments_are_one_statement_and_nothing_else(
    pattern: str, chain: str | list[str], column: int
) -> None:
    with pytest.raises(RouteError) as caught:
        parse_entry(pattern, chain, "set()", words=WORDS)
    assert caught.value.location == Location("set()", 1, column)


def test_a_chain_alone() -> None:
    assert parse_chain("V=host, cpu", "V", words=WORDS, start=2) == ("boxing", "cpu")
    with pytest.raises(RouteError) as caught:
        parse_chain("V=host, cp", "V", words=WORDS, start=2)
    assert caught.value.location.column == 9


@pytest.mark.parametrize(
    ("aliases", "providers", "match"),
    [
        ({"host": "nowhere"}, [], "no such route"),
        ({"a b": "cpu"}, [], "cannot be the name of a route"),
        ({"": "cpu"}, [], "cannot be the name of a route"),
        ({"cpu": "boxing"}, [], "means 'cpu' already"),
        ({"mine": "cpu"}, ["mine"], "means 'mine' already"),
        ({}, ["mine#"], "cannot be the name of a route"),
        ({}, ["cpu"], "use another name"),
        ({"a": "cpu", "b": "a"}, [], "no such route"),
    ],
)
def test_vocabularies_are_checked(
    aliases: dict[str, str], providers: list[str], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        vocabulary(aliases, providers)


def test_the_modules_need_no_torch() -> None:
    code = (
        "import importlib, pathlib, sys, types\n"
        "for name, path in (('torch_fl', sys.argv[1]), ('torch_fl.routing', sys.argv[2])):\n"
        "    package = sys.modules[name] = types.ModuleType(name)\n"
        "    package.__path__ = [path]\n"
        "import torch_fl.routing.environment\n"
        "assert not {'torch', 'torch_fl._C'} & sys.modules.keys()\n"
    )
    folder = Path(grammar.__file__).parent
    subprocess.run([sys.executable, "-c", code, folder.parent, folder], check=True)


@given(FILES, st.sampled_from(["\n", "\r\n", "  # why\n", "\n\n\t\n#\n"]))
def test_what_is_written_is_read(entries: list[Entry], end: str) -> None:
    text = end.join(f"{heading(entry)}={' ,'.join(entry.chain)}" for entry in entries)
    assert parse(text, "x", words=WORDS) == tuple(entries)
    assert is_right(text)


@given(TEXTS)
def test_a_text_is_right_or_a_route_error(text: str) -> None:
    """The short form of the fuzzing in test_fuzz.py."""
    try:
        entries = parse(text, "x", words=WORDS)
    except RouteError as error:
        str(error).encode()
        assert not is_right(text)
        return
    assert is_right(text)
    written = unparse(entries)
    assert parse(written, "x", words=WORDS) == entries
    assert unparse(parse(written, "y", words=WORDS)) == written
