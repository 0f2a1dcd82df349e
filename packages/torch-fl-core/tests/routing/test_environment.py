"""Owns: tests of the layers that FLAGOS_BACKEND_CONFIG and FLAGOS_OP_* make."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from route_texts import WORDS

from torch_fl.routing.environment import layers
from torch_fl.routing.errors import Location, RouteError
from torch_fl.routing.table import Layer, Table

KNOWN = ("aten::add.Tensor", "aten::add_.Tensor", "aten::mm", "aten::__and__.Scalar",
         "aten::_foreach_add_.List", "prims::mul", "aten::matmul")  # fmt: skip


def _layers(
    variables: dict[str, str], profiles: dict[str, Path] | None = None
) -> tuple[Layer, ...]:
    return layers(KNOWN, words=WORDS, profiles=profiles, environment=variables)


def _error(variables: dict[str, str], profiles: dict[str, Path] | None = None) -> RouteError:
    with pytest.raises(RouteError) as caught:
        _layers(variables, profiles)
    return caught.value


def test_nothing_set() -> None:
    assert _layers({}) == ()
    assert _layers({"FLAGOS_BACKEND_CONFIG": " ", "FLAGOS_OP_mm": ""}) == ()


def test_the_process_is_read_and_never_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLAGOS_BACKEND_CONFIG", raising=False)
    monkeypatch.setenv("FLAGOS_OP_mm", "cpu")
    before = dict(os.environ)
    (layer,) = layers(KNOWN, words=WORDS)
    assert [entry.pattern for entry in layer.entries] == ["aten::mm"]
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("mm", "aten::mm"),
        ("mm__default", "aten::mm.default"),
        ("add", "aten::add"),
        ("add__Tensor", "aten::add.Tensor"),
        ("add___Tensor", "aten::add_.Tensor"),
        ("__and__", "aten::__and__"),
        ("__and____Scalar", "aten::__and__.Scalar"),
        ("_foreach_add___List", "aten::_foreach_add_.List"),
        ("prims__mul", "prims::mul"),
        ("prims__mul__default", "prims::mul.default"),
        ("default", "default"),
    ],
)
def test_names_of_operators(name: str, pattern: str) -> None:
    (layer,) = _layers({f"FLAGOS_OP_{name}": "host, cpu"})
    (entry,) = layer.entries
    assert (layer.name, entry.pattern, entry.dtypes) == ("environment", pattern, None)
    assert entry.chain == ("boxing", "cpu")
    assert entry.location == Location(f"environment variable FLAGOS_OP_{name}", 1, 1)
    assert entry.text == f"FLAGOS_OP_{name}=host, cpu"


def test_an_operator_that_there_is_not() -> None:
    error = _error({"FLAGOS_OP_add__Tensr": "cpu"})
    assert error.location == Location("environment variable FLAGOS_OP_add__Tensr", 1, 11)
    assert error.nearest == "add__Tensor"
    assert str(error) == (
        "environment variable FLAGOS_OP_add__Tensr:1:11: there is no operator 'add__Tensr'\n"
        "    FLAGOS_OP_add__Tensr=cpu\n"
        "              ^\n"
        "expected an operator of this PyTorch, '.' and '::' in its name written '__'; "
        "did you mean 'add__Tensor'?"
    )
    for name in ("", "MM", "mm*", "aten::mm", "mm.default", "_foreach_*", "x\ny"):
        assert "there is no operator" in str(_error({f"FLAGOS_OP_{name}": "cpu"}))


def test_a_name_with_two_meanings() -> None:
    known = ("aten::a_._b", "aten::a.__b", "prims::mul", "aten::prims.mul")
    for name, meant in (("a____b", "a.__b or a_._b"), ("prims__mul", "prims.mul or prims::mul")):
        with pytest.raises(RouteError) as caught:
            layers(known, words=WORDS, environment={f"FLAGOS_OP_{name}": "cpu"})
        assert caught.value.problem == f"{name!r} can mean {meant}"
        assert "FLAGOS_BACKEND_CONFIG" in caught.value.expected


@pytest.mark.parametrize(
    ("chain", "column", "nearest"),
    [
        ("natve", 14, "native"),
        ("cpu, natve", 19, "native"),
        ("cpu,", 18, None),
        ("cpu # because", 18, None),
        ("=cpu", 14, None),
        ("cpu\nadd = cpu", 17, None),
    ],
)
def test_chains_that_are_none(chain: str, column: int, nearest: str | None) -> None:
    error = _error({"FLAGOS_OP_mm": chain})
    assert error.location == Location("environment variable FLAGOS_OP_mm", 1, column)
    assert error.nearest == nearest


def test_a_composite_operator_is_refused_by_the_table() -> None:
    table = Table(_layers({"FLAGOS_OP_matmul": "cpu"}))
    with pytest.raises(RouteError, match="cannot be routed"):
        table.check(KNOWN, ["aten::matmul"])


def test_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "routes.conf").write_text("mm = cpu\n")
    monkeypatch.chdir(tmp_path)
    for config in ("routes.conf", "./routes.conf", str(tmp_path / "routes.conf")):
        (layer,) = _layers({"FLAGOS_BACKEND_CONFIG": config})
        assert layer.name == "config"
        assert [entry.location.file for entry in layer.entries] == [config]


def test_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fast.conf").write_text("mm = native\n")
    (tmp_path / "fast").write_text("mm = cpu\n")
    monkeypatch.chdir(tmp_path)
    profiles = {"fast": tmp_path / "fast.conf"}
    (layer,) = _layers({"FLAGOS_BACKEND_CONFIG": "fast"}, profiles)
    assert layer.entries[0].chain == ("native",)
    (layer,) = _layers({"FLAGOS_BACKEND_CONFIG": "./fast"}, profiles)
    assert layer.entries[0].chain == ("cpu",)


def test_neither_a_file_nor_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    error = _error({"FLAGOS_BACKEND_CONFIG": "fst"}, {"fast": tmp_path, "safe": tmp_path})
    assert error.location.file == "environment variable FLAGOS_BACKEND_CONFIG"
    assert error.problem == "there is no file 'fst', and no such profile"
    assert error.expected == "a file of routes, or a profile: fast or safe"
    assert error.nearest == "fast"
    assert _error({"FLAGOS_BACKEND_CONFIG": "x"}).problem == "there is no file 'x'"
    assert "it is a folder" in str(_error({"FLAGOS_BACKEND_CONFIG": str(tmp_path)}))


def test_both_in_their_order(tmp_path: Path) -> None:
    file = tmp_path / "routes.conf"
    file.write_text("mm = native\nadd = native\n")
    found = _layers({"FLAGOS_BACKEND_CONFIG": str(file), "FLAGOS_OP_mm": "cpu"})
    assert [layer.name for layer in found] == ["config", "environment"]
    table = Table(found)
    assert [clause.chain for clause in table.resolve("aten::mm").clauses] == [("cpu",)]
    assert [clause.chain for clause in table.resolve("add.Tensor").clauses] == [("native",)]
