"""Owns: tests of calls whose error or warnings are the result."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch

from torch_fl.testing.harness.call import perform
from torch_fl.testing.harness.cases import Case, NotASample
from torch_fl.testing.harness.compare import Expectation, Mismatch, compare
from torch_fl.testing.harness.movers import CPU, Arguments, Mover
from torch_fl.testing.harness.telling import Raised, shared_words, told

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch_fl.testing.harness.cases import Judged

FLAGOS = torch.device("flagos", 0)


def _refuse(text: str, kind: type[Exception] = RuntimeError) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        raise kind(text)

    return call


def _result(
    function: Callable[..., Any], judged: Judged = "error", device: torch.device = CPU
) -> Any:
    case = Case("a case", function, Arguments((torch.ones(2),), {}), judged, "words")
    return told(case, device, own_texts=False)(torch.ones(2))


@pytest.mark.parametrize(
    ("on_cpu", "on_flagos", "equal"),
    [
        ("tensors on cpu and meta", "tensors on flagos:0 and meta", True),
        ("torch.FloatTensor", "torch.flagos.FloatTensor", True),
        ("at 0x7f01", "at 0x5502", True),
        ("tensor([1.])", "tensor([1.], device='flagos:0')", True),
        ("tensors on cpu", "tensors on cpu", False),
        ("not for 'Long'", "not for 'Int'", False),
    ],
)
def test_texts_are_equal_but_for_the_devices_name(on_cpu: str, on_flagos: str, equal: bool) -> None:
    words = shared_words(on_cpu, CPU), shared_words(on_flagos, FLAGOS)
    assert (words[0] == words[1]) is equal, words


def test_an_error_is_a_result() -> None:
    expected = _result(_refuse("on cpu"))
    assert expected == _result(_refuse("on flagos:0"), device=FLAGOS)
    assert expected != _result(_refuse("on cpu", ValueError))
    assert expected != _result(_refuse("elsewhere"))
    with pytest.raises(NotASample):
        _result(lambda x: x)


def test_where_the_target_words_its_errors_the_pattern_counts() -> None:
    case = Case("a case", _refuse("some words"), Arguments((), {}), "error", "words")
    assert told(case, FLAGOS, own_texts=True)() == Raised(error="RuntimeError", text=True)
    other = Case("a case", _refuse("some text"), Arguments((), {}), "error", "words")
    assert told(other, FLAGOS, own_texts=True)() == Raised(error="RuntimeError", text=False)


def test_warnings_are_a_part_of_the_result() -> None:
    def warn(text: str, times: int = 1) -> Callable[..., Any]:
        def call(x: torch.Tensor) -> torch.Tensor:
            for _ in range(times):
                warnings.warn(text, stacklevel=1)
            return x

        return call

    def warnings_of(function: Callable[..., Any]) -> Any:
        return _result(function, "alerts")["warnings"]

    assert warnings_of(warn("resized")) == ["resized"]
    assert warnings_of(warn("resized", times=3)) == ["resized"]
    assert warnings_of(lambda x: x) == []
    assert warnings_of(warn("Sparse CSR tensor support is in beta state")) == []
    assert not torch.is_warn_always_enabled()


def test_once_warnings_are_given_on_both_sides() -> None:
    def resize(x: torch.Tensor) -> torch.Tensor:
        return torch.add(x, 1, out=torch.ones(5))

    first, second = _result(resize, "alerts"), _result(resize, "alerts")
    assert first["warnings"] == second["warnings"]
    assert "resized" in first["warnings"][0]


def test_after_a_failed_call_more_may_be_counted_and_less_may_not() -> None:
    def fail_after(times: int, resized: bool = False) -> Callable[..., Any]:
        def call(x: torch.Tensor) -> Any:
            for _ in range(times):
                x.add_(0)
            if resized:
                x.resize_(200)
            raise RuntimeError("too late")

        return call

    def outcome(function: Callable[..., Any]) -> Any:
        case = Case("a case", function, Arguments((torch.ones(2),), {}), "alerts")
        arguments = Mover(CPU).arguments(case.arguments)
        return perform(told(case, CPU, own_texts=False), arguments, CPU, seed=1)

    compare(outcome(fail_after(1)), outcome(fail_after(3)), Expectation(CPU))
    with pytest.raises(Mismatch, match="version"):
        compare(outcome(fail_after(3)), outcome(fail_after(1)), Expectation(CPU))
    first, second = outcome(fail_after(1, True)), outcome(fail_after(1, True))
    second.inputs[0][100:] = 7.0  # what was enlarged and not written holds anything
    compare(first, second, Expectation(CPU))
