"""Owns: tests of the dispatch benchmark's method: its figures, goals and processes."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

BENCH = Path(__file__).parents[1] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The benchmark's modules; they import each other from their own folder."""
    if not BENCH.is_dir():
        pytest.skip("the benchmarks are in the repository and not in the wheel")
    monkeypatch.syspath_prepend(str(BENCH))
    import _dispatch_cases
    import _native_process
    import _slices

    yield SimpleNamespace(cases=_dispatch_cases, native=_native_process, slices=_slices)
    for name in ("_dispatch_cases", "_native_process", "_slices"):
        sys.modules.pop(name)


def test_the_difference_is_the_median_of_the_pairs(bench: SimpleNamespace) -> None:
    # A burst of load hits both slices of the last two pairs, 1000 ns in each.
    comparison = bench.slices.Comparison([10, 12, 11, 1010, 1012], [30, 33, 29, 1030, 1034])
    assert (comparison.first_ns, comparison.second_ns) == (12, 33)
    assert comparison.difference_ns == 20
    assert 0 < comparison.error_ns < 2
    assert comparison.ratio == pytest.approx(29 / 11)


def test_goals(bench: SimpleNamespace) -> None:
    goal = bench.cases.Goal
    assert goal(nanoseconds=250.0).met(250.0, 9.0) is True
    assert goal(nanoseconds=250.0).met(251.0, 1.0) is False
    assert goal(ratio=1.1).met(1e9, 1.1) is True
    assert goal(ratio=1.1).met(0.0, 1.11) is False
    assert goal().met(1e9, 9.0) is None
    by_name = bench.cases.CASES
    assert by_name["add"].goal.nanoseconds == 120 + 2 * 65
    assert by_name["add out="].goal.nanoseconds == 120 + 3 * 65
    assert by_name["empty(device=)"].goal.nanoseconds == 120
    assert by_name["view"].goal.nanoseconds == 20
    assert by_name["MLP training step"].goal.ratio == 1.10


def test_a_statement_sees_its_names(bench: SimpleNamespace) -> None:
    seen: list[int] = []
    # `i` and `t`, because the timer's own loop has names like these.
    statement = bench.slices.Statement("t(i)", {"t": seen.append, "i": 7})
    side = bench.slices.LocalSide(statement, lambda: seen.append(0))
    assert side.seconds_per_call(3) > 0
    assert seen == [0, 7, 7, 7, 0]


def test_slices_alternate_and_are_kept_in_pairs(bench: SimpleNamespace) -> None:
    order: list[str] = []

    class Side:
        def __init__(self, name: str, seconds: float) -> None:
            self.name, self.seconds = name, seconds

        def seconds_per_call(self, calls: int) -> float:
            order.append(self.name)
            return self.seconds

    comparison = bench.slices.Comparison()
    bench.slices.add_pairs(comparison, Side("a", 1e-9), Side("b", 3e-9), 5, 40, random.Random(0))
    pairs = [(order[i], order[i + 1]) for i in range(2, len(order), 2)]  # 2: the warm-up
    assert set(pairs) == {("a", "b"), ("b", "a")}
    assert len(comparison.first) == 40
    assert comparison.first_ns == pytest.approx(1)
    assert comparison.difference_ns == pytest.approx(2)


def test_every_case_runs(bench: SimpleNamespace) -> None:
    cpu = torch.device("cpu")
    for name, case in bench.cases.CASES.items():
        with torch.set_grad_enabled(case.grad):
            assert bench.native.local_side(name, cpu).seconds_per_call(2) > 0, name


def test_the_native_side_can_run_in_another_process(bench: SimpleNamespace) -> None:
    process = bench.native.NativeProcess(torch.device("cpu"))
    try:
        for name in ("mm forward + backward", "add"):
            assert bench.native.RemoteSide(process, name).seconds_per_call(3) > 0
        with pytest.raises(EOFError):
            process.seconds_per_call("no such case", 1)
    finally:
        process.close()
