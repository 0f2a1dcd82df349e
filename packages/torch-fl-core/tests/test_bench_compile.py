"""Owns: tests of the compiler's benchmark: its rows, and what pairs of processes come to."""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

BENCH = Path(__file__).parents[1] / "bench"
SHARED = Path(__file__).parents[2] / "torch-fl-cuda" / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The benchmark's modules; they import each other from their own folders."""
    if not BENCH.is_dir() or not SHARED.is_dir():
        pytest.skip("the benchmarks are in the repository and not in the wheel")
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(SHARED))
    monkeypatch.syspath_prepend(str(BENCH))
    import _compile_rows
    import _environment
    import _plan
    import _sides
    import compile as benchmark
    import training

    monkeypatch.setattr(_environment, "build", lambda: "abc")
    monkeypatch.setattr(_sides, "environment", lambda *_: {"torch": "2.13.0"})
    yield SimpleNamespace(
        rows=_compile_rows, run=benchmark, training=training, out_of_time=_plan.OutOfTimeError
    )
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if Path(file).is_relative_to(BENCH) or Path(file).is_relative_to(SHARED):
            del sys.modules[name]


def _pair(native: float, flagos: float) -> dict[str, Any]:
    end = {"first": 1.5, "last": 0.5}
    reports = {"compile_s": 10.0, "eager_ms": 9.0, "phases_s": {"codegen": 3.0, "trace": 2.0}}
    return {
        "turns": [[native, flagos]] * 4,
        "native": {**end, "reports": reports},
        "device": {
            **end,
            "reports": {
                **{"compile_s": 12.0, "eager_ms": 9.0, "boundary_us": 1.25},
                "phases_s": {"codegen": 3.25, "trace": 3.5, "renaming": 0.125},
            },
        },
    }


def test_rows_are_models_in_modes(bench: SimpleNamespace) -> None:
    rows = bench.rows.rows(("mlp", "qwen3"), ("default", "max-autotune"), "cpu")
    names = ["mlp", "qwen3-train", "qwen3-decode"]
    assert [row.name for row in rows] == [
        f"{name}, {mode}" for mode in ("default", "max-autotune") for name in names
    ]
    assert {row.size["mode"] for row in rows} == {"default", "max-autotune"}
    every = [row for model in bench.rows.MODELS.values() for row in model]
    assert set(every) == set(bench.rows.ABOUT) == set(bench.rows.HOST_SIZES)
    assert set(every) == set(bench.rows.LARGE_SIZES)


def test_goals_depend_on_the_target(bench: SimpleNamespace) -> None:
    host = {goal.figure: str(goal) for goal in bench.rows.goals("cpu")}
    cuda = {goal.figure: str(goal) for goal in bench.rows.goals("cuda")}
    assert (host["run time"], cuda["run time"]) == ("≤ 1.05 ×", "≤ 1.02 ×")
    assert (host["compile time"], cuda["compile time"]) == ("–", "≤ 1.05 ×")
    assert (host["boundary"], cuda["boundary"]) == ("≤ 3.00 µs", "–")


def test_phases_of_a_compilation_that_takes_too_long_are_told(bench: SimpleNamespace) -> None:
    (row,) = bench.rows.rows(("mlp",), ("default",), "cuda")
    found = bench.run.of_pairs(row, [_pair(2.0, 2.0)])
    assert list(found["phases_s"].items()) == [
        ("trace", (2.0, 3.5)),
        ("codegen", (3.0, 3.25)),
        ("renaming", (0.0, 0.125)),
    ]
    assert bench.run.where_they_differ(found).startswith("trace 2 -> 3.5, codegen 3 -> 3.25")
    (row,) = bench.rows.rows(("mlp",), ("default",), "cpu")
    assert bench.run.where_they_differ(bench.run.of_pairs(row, [_pair(2.0, 2.0)])) == ""
    assert bench.run.where_they_differ({}) == ""


def test_what_pairs_come_to(bench: SimpleNamespace) -> None:
    (row,) = bench.rows.rows(("mlp",), ("default",), "cpu")
    found = bench.run.of_pairs(row, [_pair(2.0, 3.0), _pair(2.0, 3.0), _pair(2.0, 4.0)])
    figures = {figure["figure"]: figure for figure in found["figures"]}
    assert figures["run time"]["value"] == 1.5
    assert figures["run time"]["interval"] == [1.5, 2.0]
    assert figures["compile time"]["value"] == 1.2
    assert figures["gain"]["value"] == 3.0
    assert figures["boundary"]["value"] == 1.25
    assert found["verdict"] == "over"
    assert found["agreement"] == "bit for bit"
    assert found["flagos"]["median"] == 3.0
    assert found["native"]["compile_s"] == 10.0
    # On a GPU the slower compilation is over its goal as well.
    (row,) = bench.rows.rows(("mlp",), ("default",), "cuda")
    figures = {f["figure"]: f for f in bench.run.of_pairs(row, [_pair(2.0, 2.0)])["figures"]}
    assert figures["run time"]["verdict"] == "ok"
    assert figures["compile time"]["verdict"] == "over"


def test_the_command_measures_rows_in_turns(
    bench: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []
    most = 3

    class Pair(nullcontext[Any]):
        s = 0.1

        def __init__(self, row: Any, *_: Any) -> None:
            super().__init__(self)
            self._name = row.name

        def build(self, _: float) -> None:
            if len(measured) == most:
                raise bench.out_of_time("no time")

        def measure(self, _: float) -> tuple[dict[str, Any], str]:
            measured.append(self._name)
            return {**_pair(2.0, 2.0), "s": 0.1}, "float32"

    monkeypatch.setattr(bench.training, "Pair", Pair)
    file = tmp_path / "compile.json"
    words = ["--compare", "--native", "cpu", "--quick", "--pairs", "2", "--json", str(file)]
    words += ["--model", "mlp", "flex", "--mode"]
    assert bench.run.main([*words, "default"]) == 1
    assert measured == ["mlp, default", "flex, default", "mlp, default"]
    most = 100
    assert bench.run.main([*words, "default"]) == 0
    assert measured[3:] == ["flex, default"]
    rows = json.loads(file.read_text())["rows"]
    assert {len(row["pairs"]) for row in rows.values()} == {2}
    assert rows["mlp, default"]["verdict"] == "ok"
    assert bench.run.main([*words, "all"]) == 0
    modes = [name.partition(", ")[2] for name in json.loads(file.read_text())["rows"]]
    assert modes == [mode for mode in bench.rows.MODES for _ in range(2)]
    measured.clear()
    assert bench.run.main([*words, "default", "--again"]) == 0
    assert len(measured) == 4
    assert bench.run.main([*words, "default", "--reason", "mlp, default", "why"]) == 0
    assert json.loads(file.read_text())["rows"]["mlp, default"]["reason"] == "why"
    assert bench.run.main([*words, "default", "--reason", "none", "why"]) == 2


def test_rows_know_what_a_pair_needs(bench: SimpleNamespace) -> None:
    assert bench.rows.MODES[0] == "default"
    models = tuple(bench.rows.MODELS)
    for row in bench.rows.rows(models, tuple(bench.rows.MODES), "cuda"):
        assert 0 < row.pair_s < row.limit_s == 240
    assert set(bench.rows.LARGE_PAIR_S) == set(bench.rows.ABOUT)


def test_processes_that_compile_at_the_same_time_have_equal_shares(
    bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCH / "compiled"))
    from _compiled_child import share

    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert [share(builders) for builders in (2, 4, 12, 32)] == [8, 4, 1, 1]


def test_rows_compile_together_where_none_times_kernels(bench: SimpleNamespace) -> None:
    models, modes = tuple(bench.rows.MODELS), tuple(bench.rows.MODES)
    together = {row.size["mode"] for row in bench.rows.rows(models, modes, "cuda") if row.together}
    assert together == {"default", "reduce-overhead"}
    assert not any(row.together for row in bench.rows.rows(models, modes, "cpu"))
