"""Owns: tests of routing.report(): what it counts and times, nesting, and how it reads."""

from __future__ import annotations

import importlib
import threading
import time

import pytest
import torch

from torch_fl import routing

# The name `routing.report` is the function, which hides the module from attribute access.
report_module = importlib.import_module("torch_fl.routing.report")


def _calls(report: routing.Report, overload: str) -> int:
    """Calls of an operator by any route; `overload` is as in "add.Tensor"."""
    return sum(row.calls for row in report.rows if row.operator == f"aten::{overload}")


@pytest.fixture
def a() -> torch.Tensor:
    return torch.ones(64, 64, device="flagos")


def test_calls_are_counted_per_operator_and_route(a: torch.Tensor) -> None:
    with routing.report() as report:
        for _ in range(3):
            torch.add(a, a)
        torch.mul(a, a)
    assert _calls(report, "add.Tensor") == 3
    assert _calls(report, "mul.Tensor") == 1
    assert {row.route for row in report.rows if row.operator == "aten::add.Tensor"} == {"boxing"}
    assert len({(row.operator, row.route) for row in report.rows}) == len(report.rows)
    assert all(row.calls > 0 and row.device_time_s >= 0 for row in report.rows)


def test_cpu_work_is_not_seen() -> None:
    x = torch.ones(8)
    with routing.report() as report:
        torch.add(x, x)
    assert report.rows == ()
    assert report.fallbacks == ()


def test_time_is_in_seconds_on_the_device(a: torch.Tensor) -> None:
    big = torch.ones(700, 700, device="flagos")
    begin = time.perf_counter()
    with routing.report() as report:
        for _ in range(5):
            torch.mm(big, big)
        torch.add(a, a)
    wall = time.perf_counter() - begin
    times = {row.operator: row.device_time_s for row in report.rows}
    assert 0 < times["aten::add.Tensor"] < times["aten::mm"] < wall
    assert sum(times.values()) <= wall
    assert [row.device_time_s for row in report.rows] == sorted(times.values(), reverse=True)


def test_rows_can_be_read_inside_and_are_final_afterwards(a: torch.Tensor) -> None:
    with routing.report() as report:
        assert _calls(report, "add.Tensor") == 0
        torch.add(a, a)
        assert _calls(report, "add.Tensor") == 1
        torch.add(a, a)
    torch.add(a, a)
    with routing.report():
        torch.add(a, a)
    assert _calls(report, "add.Tensor") == 2


def test_reports_nest(a: torch.Tensor) -> None:
    with routing.report() as outer:
        torch.add(a, a)
        with routing.report() as inner:
            torch.add(a, a)
            torch.mul(a, a)
        torch.add(a, a)
    assert (_calls(inner, "add.Tensor"), _calls(inner, "mul.Tensor")) == (1, 1)
    assert (_calls(outer, "add.Tensor"), _calls(outer, "mul.Tensor")) == (3, 1)


def test_reports_may_overlap(a: torch.Tensor) -> None:
    first, second = routing.report(), routing.report()
    first.__enter__()
    torch.add(a, a)
    second.__enter__()
    torch.add(a, a)
    first.__exit__(None, None, None)
    torch.mul(a, a)
    second.__exit__(None, None, None)
    assert (_calls(first, "add.Tensor"), _calls(first, "mul.Tensor")) == (2, 0)
    assert (_calls(second, "add.Tensor"), _calls(second, "mul.Tensor")) == (1, 1)


def test_an_exception_passes_and_ends_the_report(a: torch.Tensor) -> None:
    with pytest.raises(KeyError), routing.report() as report:  # noqa: PT012
        torch.add(a, a)
        raise KeyError
    torch.mul(a, a)
    assert (_calls(report, "add.Tensor"), _calls(report, "mul.Tensor")) == (1, 0)
    with routing.report() as another:
        torch.mul(a, a)
    assert (_calls(another, "add.Tensor"), _calls(another, "mul.Tensor")) == (0, 1)


def test_a_failing_operator_does_not_upset_the_count(a: torch.Tensor) -> None:
    with routing.report() as report:
        with pytest.raises(RuntimeError):
            torch.mm(a, torch.ones(3, 3, device="flagos"))
        torch.mm(a, a)
    assert _calls(report, "mm") in (1, 2)


def test_other_threads_are_counted(a: torch.Tensor) -> None:
    def work() -> None:
        for _ in range(100):
            torch.add(a, a)

    with routing.report() as report:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert _calls(report, "add.Tensor") == 400


def test_backward_is_counted() -> None:
    x = torch.ones(4, 4, device="flagos", requires_grad=True)
    with routing.report() as report:
        torch.mm(x, x).sum().backward()
    assert _calls(report, "mm") == 3


def test_observing_ends_with_the_last_report(
    a: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = []
    extension = report_module._C
    for name in ("start_counting", "stop_counting"):
        real = getattr(extension, name)
        monkeypatch.setattr(
            extension, name, lambda name=name, real=real: (events.append(name), real())
        )
    with routing.report():
        torch.add(a, a)
        with routing.report():
            torch.add(a, a)
        assert events == ["start_counting"]
    assert events == ["start_counting", "stop_counting"]


def test_a_report_records_one_block() -> None:
    report = routing.report()
    with pytest.raises(RuntimeError, match="not started"):
        report.rows  # noqa: B018
    with report:
        pass
    assert report.rows == ()
    with pytest.raises(RuntimeError, match="one block"):
        report.__enter__()


OBSERVED = [
    ("aten::add.Tensor", "boxing", 10, 2_500_000),
    ("aten::add.Tensor", "cpu", 1, 40_000),
    ("aten::convolution_overrideable", "native", 2000, 1_250_000_000),
    ("aten::view", "boxing", 3, 0),
]


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> routing.Report:
    """A report of OBSERVED, for what cannot be made to happen or to take a known time."""
    observed: list[tuple[str, str, int, int]] = []
    monkeypatch.setattr(report_module._C, "observations", lambda: observed)
    with routing.report() as report:
        observed.extend(OBSERVED)
    return report


def test_rows_are_sorted_by_time(made_up: routing.Report) -> None:
    assert made_up.rows == (
        routing.Row("aten::convolution_overrideable", "native", 2000, 1.25),
        routing.Row("aten::add.Tensor", "boxing", 10, 0.0025),
        routing.Row("aten::add.Tensor", "cpu", 1, 0.00004),
        routing.Row("aten::view", "boxing", 3, 0.0),
    )


def test_fallbacks_are_the_rows_of_the_cpu_route(made_up: routing.Report) -> None:
    assert made_up.fallbacks == (routing.Row("aten::add.Tensor", "cpu", 1, 0.00004),)


def test_table(made_up: routing.Report) -> None:
    assert str(made_up) == made_up.table()
    assert str(made_up).splitlines() == [
        "operator                        route   calls  device time",
        "----------------------------------------------------------",
        "aten::convolution_overrideable  native   2000  1250.000 ms",
        "aten::add.Tensor                boxing     10     2.500 ms",
        "aten::add.Tensor                cpu         1     0.040 ms",
        "aten::view                      boxing      3     0.000 ms",
        "----------------------------------------------------------",
        "total                                    2014  1252.540 ms",
    ]


def test_table_with_a_limit_keeps_the_total(made_up: routing.Report) -> None:
    assert made_up.table(limit=1).splitlines()[2:] == [
        "aten::convolution_overrideable  native   2000  1250.000 ms",
        "... 3 more                                 14     2.540 ms",
        "----------------------------------------------------------",
        "total                                    2014  1252.540 ms",
    ]
    assert made_up.table(limit=4) == made_up.table(limit=9) == str(made_up)
    assert "... 4 more" in made_up.table(limit=0)
    with pytest.raises(ValueError, match="limit"):
        made_up.table(limit=-1)


def test_table_of_nothing() -> None:
    with routing.report() as report:
        pass
    assert str(report).splitlines()[-1].split() == ["total", "0", "0.000", "ms"]


def test_operators_of_a_library_that_is_gone_keep_their_names() -> None:
    x = torch.ones(3, device="flagos")
    names = [f"gone{number}" for number in range(30)]
    with routing.report() as report:
        for name in names:
            library = torch.library.Library(f"flagos_{name}", "DEF")
            library.define(f"{name}(Tensor x) -> Tensor")
            library.impl(name, lambda x: x.clone(), "CPU")
            getattr(getattr(torch.ops, f"flagos_{name}"), name)(x)
            library._destroy()
            delattr(torch.ops, f"flagos_{name}")
    calls = {row.operator: row.calls for row in report.rows}
    assert {name: calls.get(f"flagos_{name}::{name}") for name in names} == dict.fromkeys(names, 1)
