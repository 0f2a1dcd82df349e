"""Owns: tests of which line decides: layers, specificity, dtypes, defaults, and dead lines."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from route_texts import WORDS

from torch_fl.routing.errors import Location, RouteError
from torch_fl.routing.grammar import Entry, parse
from torch_fl.routing.table import Layer, Resolution, Table

KNOWN = ("aten::add.Tensor", "aten::add.Scalar", "aten::add.out", "aten::mm", "aten::mm.out",
         "aten::_foreach_add.List", "aten::matmul", "aten::matmul.out", "prims::mul",
         "aten::linear")  # fmt: skip
IMPLICIT = ("aten::matmul", "aten::matmul.out", "aten::linear")


def _layer(text: str, name: str = "config") -> Layer:
    return Layer(name, parse(text, f"{name}.conf", words=WORDS))


def _table(*texts: str) -> Table:
    names = ("plugin", "config", "environment", "set", "use")
    return Table(_layer(text, name) for text, name in zip(texts, names, strict=False))


def _chains(resolution: Resolution) -> list[tuple[set[str] | None, str]]:
    return [
        (None if clause.dtypes is None else set(clause.dtypes), ",".join(clause.chain))
        for clause in resolution.clauses
    ]


def _chain(table: Table, operator: str, dtype: str | None = None) -> str:
    clause = table.resolve(operator).clause(dtype)
    return ",".join(clause.chain) if clause else ""


def test_nothing_said() -> None:
    assert _table().resolve("aten::mm").clauses == ()
    assert _table("", "add = cpu").resolve("aten::mm").clauses == ()
    assert _table("").resolve("aten::mm").clause(None) is None


def test_a_clause_tells_where_it_comes_from() -> None:
    (clause,) = _table("mm = cpu", "\nmm = native").resolve("aten::mm").clauses
    assert (clause.layer, clause.entry.location) == ("config", Location("config.conf", 2, 1))
    assert clause.entry.text == "mm = native"


@pytest.mark.parametrize("operator", ["aten::mm", "mm", "mm.default", "aten::mm.default"])
def test_operators_can_be_written_in_full(operator: str) -> None:
    assert _chain(_table("mm.default = cpu"), operator) == "cpu"


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("mm", {"aten::mm", "aten::mm.out"}),
        ("mm.default", {"aten::mm"}),
        ("mm.out", {"aten::mm.out"}),
        ("mm.*", {"aten::mm", "aten::mm.out"}),
        ("add.*a*", {"aten::add.Scalar"}),
        ("*.out", {"aten::mm.out", "aten::add.out", "aten::matmul.out"}),
        ("m?", {"aten::mm", "aten::mm.out"}),
        ("mm*", {"aten::mm", "aten::mm.out"}),
        (
            "*d",
            {"aten::add.Tensor", "aten::add.Scalar", "aten::add.out", "aten::_foreach_add.List"},
        ),
        ("*o*t", set()),
        ("*::mul", {"prims::mul"}),
        ("p*s::*", {"prims::mul"}),
        ("*.default", {"aten::mm", "aten::matmul", "aten::linear"}),
        ("*::*", set(KNOWN)),
        ("*", set(KNOWN) - {"prims::mul"}),
    ],
)
def test_patterns(pattern: str, matches: set[str]) -> None:
    table = _table(f"{pattern} = cpu")
    assert {operator for operator in KNOWN if _chain(table, operator)} == matches


def test_a_later_layer_wins_whatever_its_pattern() -> None:
    assert _chain(_table("add.Tensor = native", "add = cpu"), "aten::add.Tensor") == "cpu"
    assert _chain(_table("add.Tensor = native", "*::* = cpu"), "aten::add.Tensor") == "cpu"
    assert _chain(_table("add = cpu", "mm = native"), "aten::add.Tensor") == "cpu"


@pytest.mark.parametrize(
    ("weaker", "stronger"),
    [
        ("add", "add.Tensor"),
        ("add.*", "add"),
        ("add", "add.T*"),
        ("add.T*", "add.Tensor"),
        ("add.Tensor*", "add.Tensor"),
        ("*dd.Tensor", "add"),
        ("*", "a*"),
        ("a*", "ad*"),
        ("a*d*", "ad*"),
        ("*::add", "add"),
        ("add[int64]", "add.Tensor"),
        ("add.Tensor", "add.Tensor[int64]"),
        ("a*", "a*[int64]"),
    ],
)
def test_within_a_layer_the_more_specific_pattern_wins(weaker: str, stronger: str) -> None:
    for lines in ((weaker, stronger), (stronger, weaker)):
        text = "".join(f"{line} = {'cpu' if line == weaker else 'native'}\n" for line in lines)
        assert _chain(_table(text), "aten::add.Tensor", "int64") == "native"


def test_of_equals_the_later_line_wins() -> None:
    assert _chain(_table("a* = cpu\n*r = cpu\na*r = native\n?dd = native"), "add.r") == "native"
    entries = parse("mm = cpu", "a", words=WORDS) + parse("mm = native", "b", words=WORDS)
    assert _chain(Table([Layer("set", entries)]), "aten::mm") == "native"


def test_other_dtypes_go_on() -> None:
    table = _table(
        "add = boxing\ndefault = cpu", "add.Tensor[int64] = native\nadd[int64,bool] = flaggems"
    )
    assert _chains(table.resolve("aten::add.Tensor")) == [
        ({"int64"}, "native"),
        ({"bool"}, "flaggems"),
        (None, "boxing"),
    ]
    assert _chain(table, "aten::add.Tensor", "float32") == "boxing"
    assert _chain(table, "aten::add.Tensor") == "boxing"
    assert _chains(_table("add[int64] = cpu").resolve("aten::add.out")) == [({"int64"}, "cpu")]


def test_other_dtypes_go_on_through_wildcards() -> None:
    table = _table("*ut = cpu\n*.out[int8] = native\n*d.out[bool] = flaggems\nx* = boxing")
    assert _chains(table.resolve("aten::add.out")) == [
        ({"bool"}, "flaggems"),
        ({"int8"}, "native"),
    ]
    table = _table("*.out[int8] = native\n*d.out[bool] = flaggems\n*.o* = cpu")
    assert _chains(table.resolve("aten::add.out")) == [
        ({"bool"}, "flaggems"),
        ({"int8"}, "native"),
        (None, "cpu"),
    ]


def test_what_is_answered_is_not_repeated() -> None:
    table = _table("add[int64] = native", "add[int64, int32] = cpu")
    assert _chains(table.resolve("aten::add.out")) == [({"int64", "int32"}, "cpu")]


def test_default_is_the_last_resort_of_all_layers() -> None:
    table = _table("mm = native\ndefault = boxing", "default = cpu")
    assert _chain(table, "aten::mm") == "native"
    assert _chain(table, "aten::add.out") == "cpu"
    assert _chain(_table("default = cpu", ""), "prims::mul") == "cpu"
    assert _chains(_table("default = cpu", "default[int64] = native").resolve("aten::mm")) == [
        ({"int64"}, "native"),
        (None, "cpu"),
    ]


@pytest.mark.parametrize(
    ("text", "problem", "nearest"),
    [
        ("mmm = cpu", "there is no operator 'mmm'", "mm"),
        ("prims::mull = cpu", "there is no operator 'prims::mull'", "prims::mul"),
        ("add.Tensr = cpu", "no overload of 'add' is 'Tensr'", "add.Tensor"),
        ("add.q* = cpu", "no overload of 'add' is 'q*'", None),
        ("foreach_add* = cpu", "'foreach_add*' matches no operator", "_foreach_add"),
        ("linear = cpu", "'linear' cannot be routed: PyTorch makes it of other operators", None),
        ("matmul.out = cpu", "'matmul.out' cannot be routed", None),
        ("lin* = cpu", "'lin*' cannot be routed", None),
    ],
)
def test_lines_without_effect(text: str, problem: str, nearest: str | None) -> None:
    table = _table("", f"default = cpu\n  {text}")
    with pytest.raises(RouteError) as caught:
        table.check(KNOWN, IMPLICIT)
    assert caught.value.problem.startswith(problem)
    assert caught.value.nearest == nearest
    assert caught.value.location == Location("config.conf", 2, 3)
    assert str(caught.value).splitlines()[1:3] == [f"    {text}", "    ^"]


def test_lines_with_effect() -> None:
    _table("m* = cpu\n* = cpu\nmm.default = cpu\nmm[int64]=cpu", "*::m? = cpu").check(
        KNOWN, IMPLICIT
    )
    _table("add.out = cpu").check(iter(KNOWN[:3]), ())
    with pytest.raises(RouteError, match="cannot be routed"):
        _table("linear = cpu").check((), IMPLICIT)


def test_all_problems_with_their_layers() -> None:
    found = list(_table("a = cpu", "b = cpu\nmm = cpu\nlinear = cpu").problems(KNOWN, IMPLICIT))
    assert [(layer.name, error.location.line) for layer, error in found] == [
        ("plugin", 1),
        ("config", 1),
        ("config", 3),
    ]


_LETTERS = st.text("ab", min_size=1, max_size=3)
_GLOBS = st.text("ab*?", min_size=1, max_size=3) | st.sampled_from(["*", "?", "a*", "*b", "**"])
_ENTRIES = st.builds(
    lambda name, overload, dtypes, route: (
        Entry(
            f"aten::{name}" + (f".{overload}" if overload else ""), dtypes, route, Location("x"), ""
        )
        if name
        else Entry("default", dtypes, route, Location("x"), "")
    ),
    st.none() | _LETTERS | _GLOBS,
    st.none() | _LETTERS | _GLOBS,
    st.none() | st.frozensets(st.sampled_from(["int64", "bool"]), min_size=1),
    st.integers().map(lambda number: (str(number),)),
)
_LAYERS = st.lists(st.lists(_ENTRIES, max_size=8).map(tuple), max_size=3)


def _decides(layers: list[tuple[Entry, ...]], operator: str, dtype: str | None) -> Entry | None:
    """The rules of table.py, one entry and one dtype at a time."""
    name, _, overload = operator.partition(".")

    def rank(layer: int, line: int, entry: Entry) -> tuple[object, ...]:
        if entry.pattern == "default":
            return (False, layer, entry.dtypes is not None, line)
        wild = sum(map(entry.pattern.count, "*?"))
        literal = sum(character.isalpha() for character in entry.pattern)
        exact = not set(entry.pattern.partition(".")[0]) & set("*?")
        return (True, layer, exact, literal, -wild, entry.dtypes is not None, line)

    def answers(entry: Entry) -> bool:
        if entry.dtypes is not None and dtype not in entry.dtypes:
            return False
        if entry.pattern == "default":
            return True
        own_name, _, own_overload = entry.pattern.partition(".")
        return fnmatchcase(name, own_name) and fnmatchcase(
            overload or "default", own_overload or "*"
        )

    ranked = [
        (rank(layer, line, entry), entry)
        for layer, entries in enumerate(layers)
        for line, entry in enumerate(entries)
        if answers(entry)
    ]
    return max(ranked, key=lambda item: item[0])[1] if ranked else None


@settings(deadline=None)
@given(_LAYERS, st.lists(st.tuples(_LETTERS, st.none() | _LETTERS), min_size=1))
def test_the_table_follows_its_rules(
    layers: list[tuple[Entry, ...]], operators: list[tuple[str, str | None]]
) -> None:
    table = Table(Layer(str(position), entries) for position, entries in enumerate(layers))
    for name, overload in operators:
        operator = f"aten::{name}" + (f".{overload}" if overload else "")
        resolution = table.resolve(operator)
        conditions = [clause.dtypes for clause in resolution.clauses]
        assert None not in conditions[:-1]
        answered = [dtype for dtypes in conditions for dtype in dtypes or ()]
        assert len(set(answered)) == len(answered)
        for dtype in (None, "int64", "bool", "float32"):
            clause = resolution.clause(dtype)
            expected = _decides(layers, operator, dtype)
            assert (clause and clause.entry) is expected


def test_wildcards_do_not_explode() -> None:
    table = _table("*a" * 40 + "*b = cpu")
    started = time.process_time()
    assert _chain(table, "aten::" + "a" * 2000) == ""
    assert time.process_time() - started < 1


def test_all_operators_are_resolved_in_a_moment() -> None:
    operators = torch._C._dispatch_get_all_op_names()
    names = sorted({name.split("::")[1].split(".")[0] for name in operators})
    text = "".join(f"aten::{name}[int64] = cpu\naten::{name} = native, cpu\n" for name in names)
    wild = "".join(f"{name[:4]}*{number} = cpu\n" for number, name in enumerate(names[:20]))
    table = _table(text, wild + "*.out = cpu\n_foreach_* = composite\ndefault = cpu")

    def seconds() -> float:
        started = time.process_time()
        for operator in operators:
            table.resolve(operator)
        return time.process_time() - started

    assert min(seconds() for _ in range(5)) < 0.05
