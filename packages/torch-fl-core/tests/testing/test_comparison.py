"""Owns: tests that the comparison of an entry sees what it is there to see.

Both sides run on the CPU here. A call is made wrong on one side, and the harness must say so and
name the kind of difference. What happens around the comparison is tested in `test_runs`.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.testing._internal.opinfo.core import SampleInput

from torch_fl.testing.harness import tree
from torch_fl.testing.harness.call import perform
from torch_fl.testing.harness.compare import Expectation, Mismatch, compare
from torch_fl.testing.harness.evaluate import Evaluator
from torch_fl.testing.harness.movers import CPU, Arguments, Mover
from torch_fl.testing.suites import op_db

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ON_CPU = Expectation(CPU)
PASSES = {item.name: item for item in op_db.SUITE.passes}


def _compare(
    right: Callable[..., Any],
    other: Callable[..., Any],
    *inputs: Any,
    expectation: Expectation = ON_CPU,
) -> float:
    """Two functions on copies of the same inputs, compared as the two sides of a call."""
    arguments = Arguments(inputs, {})
    outcomes = [
        perform(function, Mover(CPU).arguments(arguments), CPU, seed=1)
        for function in (right, other)
    ]
    return compare(outcomes[0], outcomes[1], expectation)


def _matrix() -> torch.Tensor:
    return torch.arange(12.0).reshape(3, 4)


def _add_unseen(x: torch.Tensor) -> torch.Tensor:
    """Adds 1 in place behind the version counter's back."""
    x.data.add_(1)
    return x


def _add_elsewhere(x: torch.Tensor) -> torch.Tensor:
    """Like ``x.add_(1).sum()``, but the storage has other memory afterwards."""
    x.untyped_storage().resize_(4096)
    return x.add_(1).sum()


def _add_to_another_storage(x: torch.Tensor) -> torch.Tensor:
    x.data = x.clone()
    return x.add_(1).sum()


def _zeroed_at_the_end(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    y[-1, -1] = 0
    return y


def _twice_the_same(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x + 1
    return y, y


def _two_on_one_storage(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x + 1
    return y, torch.empty(0).set_(y)


# The right function, a wrong one, and the kind of mismatch that must be reported.
DIFFERENCES: dict[str, tuple[Callable[..., Any], Callable[..., Any], str]] = {
    "value": (lambda x: x + 1, lambda x: x + 2, "value"),
    "value of one element": (lambda x: x + 1, _zeroed_at_the_end, "value"),
    "NaN for a number": (lambda x: x + 1, lambda x: x + float("nan"), "value"),
    "dtype": (lambda x: x + 1, lambda x: (x + 1).double(), "dtype"),
    "shape": (lambda x: x + 1, lambda x: (x + 1)[:2].clone(), "shape"),
    "stride": (lambda x: x + 1, lambda x: (x + 1).t().contiguous().t(), "stride"),
    "offset": (lambda x: x[1], lambda x: x[0], "offset"),
    "layout": (lambda x: x + 1, lambda x: (x + 1).to_sparse(), "layout"),
    "sparse value": (lambda x: x.to_sparse(), lambda x: (x * 2).to_sparse(), "value"),
    "sparse pattern": (lambda x: x.to_sparse(), lambda x: x.roll(1).to_sparse(), "value"),
    "uncoalesced": (
        lambda x: x.to_sparse(),
        lambda x: x.to_sparse()._coalesced_(False),
        "coalesced",
    ),
    "container": (lambda x: (x + 1, x + 1), lambda x: [x + 1, x + 1], "structure"),
    "number of results": (lambda x: (x + 1, x + 1), lambda x: (x + 1,), "structure"),
    "None for a tensor": (lambda x: x + 1, lambda x: None, "structure"),
    "plain result": (lambda x: x.numel(), lambda x: x.dim(), "value"),
    "requires_grad": (lambda x: x + 1, lambda x: (x + 1).requires_grad_(), "requires_grad"),
    "conj bit": (lambda x: (x + 0j).conj(), lambda x: (x + 0j).conj().resolve_conj(), "conj"),
    "neg bit": (lambda x: torch._neg_view(x), lambda x: torch._neg_view(x).resolve_neg(), "neg"),
    "a copy for a view": (lambda x: x.view(-1), lambda x: x.view(-1).clone(), "alias"),
    "a view for a copy": (lambda x: x.clone(), lambda x: x.view(3, 4), "alias"),
    "memory shared, no view": (lambda x: x[:], lambda x: torch.empty(0).set_(x), "alias"),
    "a copy for the input": (lambda x: x.add_(1), lambda x: x.add_(1).clone(), "alias"),
    "a view for the input": (lambda x: x.add_(1), lambda x: x.add_(1).view(3, 4), "alias"),
    "results that share memory": (lambda x: (x + 1, x + 1), _two_on_one_storage, "alias"),
    "results that are one object": (lambda x: (x + 1, x + 1), _twice_the_same, "alias"),
    "memory exchanged": (lambda x: x.add_(1).sum(), _add_elsewhere, "alias"),
    "storage exchanged": (lambda x: x.add_(1).sum(), _add_to_another_storage, "alias"),
    "version counter": (lambda x: x.add_(1), _add_unseen, "version"),
    "version counter twice": (lambda x: x.add_(2), lambda x: x.add_(1).add_(1), "version"),
    "an input written": (lambda x: x + 1, lambda x: _add_unseen(x) + 0, "value"),
    "an input resized": (lambda x: x.resize_(2).sum(), lambda x: x.resize_(3).sum(), "shape"),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_difference_is_seen_and_named(name: str) -> None:
    right, wrong, kind = DIFFERENCES[name]
    assert _compare(right, right, _matrix()) == 0.0
    with pytest.raises(Mismatch) as caught:
        _compare(right, wrong, _matrix())
    assert caught.value.kind == kind, caught.value


def test_the_device_of_a_result_is_checked() -> None:
    expected = perform(lambda x: x + 1, Arguments((_matrix(),), {}), CPU, seed=1)
    with pytest.raises(Mismatch) as caught:
        compare(expected, expected, Expectation(torch.device("meta")))
    assert caught.value.kind == "device"


def test_metadata_is_compared_where_values_are_undefined() -> None:
    undefined = Expectation(CPU, values=False)
    assert _compare(lambda x: x + 1, lambda x: x + 2, _matrix(), expectation=undefined) == 0.0
    with pytest.raises(Mismatch, match="dtype"):
        _compare(lambda x: x, lambda x: x.int(), _matrix(), expectation=undefined)


def test_views_of_private_tensors_may_be_declared() -> None:
    may = Expectation(CPU, private_views=True)

    def private_view(x: torch.Tensor) -> torch.Tensor:
        return (x + 1).view(3, 4)

    with pytest.raises(Mismatch, match="is_view"):
        _compare(lambda x: x + 1, private_view, _matrix())
    assert _compare(lambda x: x + 1, private_view, _matrix(), expectation=may) == 0.0
    assert _compare(lambda x: (x + 1, x + 1), _twice_the_same, _matrix(), expectation=may) == 0.0
    with pytest.raises(Mismatch, match="alias"):  # an input is not private
        _compare(lambda x: x.clone(), lambda x: x.view(3, 4), _matrix(), expectation=may)


def test_of_copies_it_is_not_compared_where_they_lie() -> None:
    copies = Expectation(CPU, copies=True)
    for right, other in (
        (lambda x: x[1], lambda x: x[1].clone()),
        (lambda x: x.t(), lambda x: x.t().contiguous()),
        (lambda x: (x + 1, x + 1), _two_on_one_storage),
    ):
        with pytest.raises(Mismatch):
            _compare(right, other, _matrix())
        assert _compare(right, other, _matrix(), expectation=copies) == 0.0
    for wrong, kind in (
        (lambda x: x.add_(1).clone(), "alias"),
        (lambda x: x.add_(2), "value"),
        (_add_unseen, "version"),
    ):
        with pytest.raises(Mismatch, match=kind):
            _compare(lambda x: x.add_(1), wrong, _matrix(), expectation=copies)


def test_a_resize_may_be_counted_once_more() -> None:
    def counted(times: int) -> Callable[[torch.Tensor], torch.Tensor]:
        def resize_and_fill(x: torch.Tensor) -> torch.Tensor:
            with torch.autograd._unsafe_preserve_version_counter(x):
                x.resize_(2, 2).fill_(1)
            for _ in range(times):
                x.fill_(1)
            return x

        return resize_and_fill

    empty = torch.zeros(0)
    assert _compare(counted(1), counted(2), empty) == 0.0
    for wrong in (0, 3):
        with pytest.raises(Mismatch, match="version"):
            _compare(counted(1), counted(wrong), empty)
    with pytest.raises(Mismatch, match="version"):  # without a resize, never
        _compare(lambda x: x.fill_(1), lambda x: x.fill_(1).fill_(1), _matrix())


def test_a_difference_within_tolerance_is_measured() -> None:
    difference = _compare(lambda x: x + 1, lambda x: (x + 1) * (1 + 1e-6), _matrix())
    assert 0.0 < difference < 1e-4


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.complex32, torch.bool])
def test_dtypes_without_tolerance_are_compared_too(dtype: torch.dtype) -> None:
    assert _compare(lambda x: x.to(dtype), lambda x: x.to(dtype), _matrix()) == 0.0
    with pytest.raises(Mismatch, match="value"):
        _compare(lambda x: x.to(dtype), lambda x: x.flip(0).to(dtype), _matrix())


def test_equal_nans_and_zero_tensors_are_equal() -> None:
    assert _compare(torch.sqrt, torch.sqrt, -_matrix() - 1) == 0.0

    def zeros(x: torch.Tensor) -> torch.Tensor:
        return torch._efficientzerotensor(x.shape)

    assert _compare(zeros, zeros, _matrix()) == 0.0


def test_random_numbers_are_the_same_on_both_sides() -> None:
    assert _compare(torch.rand_like, torch.rand_like, _matrix()) == 0.0


def test_moving_keeps_gaps_and_aliasing() -> None:
    base = torch.arange(24.0)
    first, second = base[1::3], base.view(4, 6).t()
    moved = Mover(CPU).arguments(Arguments((first, [second, first]), {"same": base}))
    one, (two, again) = moved.positional
    assert again is one
    assert one.stride() == first.stride()
    assert one.storage_offset() == 1
    assert two.stride() == second.stride()
    assert not one._is_view()
    assert not two._is_view()
    addresses = {t.untyped_storage().data_ptr() for t in (one, two, moved.keyword["same"])}
    assert len(addresses) == 1
    assert base.data_ptr() not in addresses
    one.fill_(-1)
    assert torch.equal(moved.keyword["same"][1::3], one)
    assert torch.equal(base, torch.arange(24.0))


def test_moving_keeps_what_a_tensor_is() -> None:
    value = torch.randn(3, 3, dtype=torch.complex64)
    originals = (
        value.conj(),
        torch._neg_view(value.real),
        torch.randn(3, requires_grad=True),
        torch.eye(3).to_sparse(),
        torch.eye(4).to_sparse_csr(),
        torch.eye(4).to_sparse_bsc((2, 2)),
        value.conj().detach().requires_grad_(),
    )
    for original in originals:
        copied = Mover(CPU).tensor(original)
        assert copied is not original
        assert copied.requires_grad == original.requires_grad
        assert copied.is_leaf
        assert (copied.is_conj(), copied.is_neg()) == (original.is_conj(), original.is_neg())
        torch.testing.assert_close(copied, original, rtol=0, atol=0)


def test_moving_replaces_devices_and_generators() -> None:
    device = torch.device("meta")
    generator = torch.Generator().manual_seed(5)
    given = {"device": "cpu", "other": torch.device("cpu"), "dtype": torch.int8, "mode": "linear"}
    moved = Mover(device).arguments(Arguments((_matrix(),), given)).keyword
    assert moved == {"device": "meta", "other": device, "dtype": torch.int8, "mode": "linear"}
    copied = Mover(CPU).arguments(Arguments((generator,), {})).positional[0]
    assert copied is not generator
    assert copied.initial_seed() == 5


def test_an_argument_declared_so_stays_on_the_cpu() -> None:
    arguments = Arguments((_matrix(), torch.tensor([1, 2])), {})
    moved = Mover(torch.device("meta"), "tensor_split").arguments(arguments).positional
    assert [tensor.device.type for tensor in moved] == ["meta", "cpu"]
    moved = Mover(torch.device("meta"), "add").arguments(arguments).positional
    assert [tensor.device.type for tensor in moved] == ["meta", "meta"]


def test_a_factory_is_given_a_device() -> None:
    sample = SampleInput(0, args=(5,))
    assert Arguments.of_sample("arange", sample).keyword == {"device": "cpu"}
    assert Arguments.of_sample("add", sample).keyword == {}


def test_named_results_are_walked_and_rebuilt() -> None:
    largest = torch.max(_matrix(), 0)
    assert [path for path, _ in tree.walk({"a": largest, "b": [3]})] == ["a.0", "a.1", "b.0"]
    doubled = tree.transform(largest, lambda path, leaf: leaf * 2)
    assert type(doubled) is type(largest)
    assert torch.equal(doubled.values, largest.values * 2)


# From here on: a whole operator, evaluated. The wrong side is the one inside `_device_side`.

_on_device = False


@contextmanager
def _device_side() -> Iterator[None]:
    global _on_device
    _on_device = True
    try:
        yield
    finally:
        _on_device = False


@dataclass
class _FakeOp:
    """The part of an OpInfo that the harness uses."""

    op: Callable[..., Any]
    samples: list[SampleInput] = field(default_factory=list)
    full_name: str = "fake"
    supports_out: bool = False
    inplace_variant: Callable[..., Any] | None = None
    dtypes: frozenset[torch.dtype] = frozenset({torch.float32, torch.float64})

    def supported_dtypes(self, device: str) -> frozenset[torch.dtype]:
        return self.dtypes

    def supported_backward_dtypes(self, device: str) -> frozenset[torch.dtype]:
        return self.dtypes

    def sample_inputs_func(
        self, op: _FakeOp, device: str, dtype: torch.dtype, requires_grad: bool
    ) -> Iterator[SampleInput]:
        if self.samples:
            yield from self.samples
            return
        for size in (2, 3, 4):
            tensor = torch.randn(size, size, dtype=dtype).requires_grad_(requires_grad)
            yield SampleInput(tensor, args=(torch.randn(size, size, dtype=dtype),))


def _evaluate(op: _FakeOp, pass_name: str, limit: int | None = None) -> Any:
    evaluator = Evaluator(CPU, seed=1, during_device_call=_device_side)
    return evaluator.evaluate(op.full_name, op, PASSES[pass_name], limit)


def _add(x: torch.Tensor, y: torch.Tensor, **keyword: Any) -> torch.Tensor:
    return torch.add(x, y, **keyword)


@pytest.mark.parametrize("pass_name", ["forward", "grad", "grad64", "out", "noncontiguous"])
def test_a_right_operator_passes(pass_name: str) -> None:
    unit = _evaluate(_FakeOp(_add, supports_out=True), pass_name)
    assert unit.ok, unit
    assert unit.passed
    assert unit.inexact == 0


def test_wrong_values_fail_in_each_sample_and_are_told_once() -> None:
    unit = _evaluate(_FakeOp(lambda x, y: x + y + _on_device), "forward")
    assert (unit.passed, unit.failed, len(unit.failures)) == (0, 3, 3)
    assert unit.failures[0].kind == "value"
    many = [SampleInput(torch.ones(1), args=(torch.ones(1),)) for _ in range(20)]
    unit = _evaluate(_FakeOp(lambda x, y: x + y + _on_device, many), "forward")
    assert (unit.failed, len(unit.failures)) == (20, 5)


def test_an_error_on_the_device_alone_is_a_failure() -> None:
    def op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if _on_device:
            raise RuntimeError("no kernel")
        return x + y

    unit = _evaluate(_FakeOp(op), "forward")
    assert unit.failed == 3
    assert unit.failures[0].kind == "raised"
    assert "no kernel" in unit.failures[0].message


def test_nothing_is_asked_of_a_device_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += _on_device
        if _on_device:
            raise RuntimeError("device-side assert")
        return x + y

    monkeypatch.setattr(Evaluator, "_is_lost", lambda self: calls > 0)
    unit = _evaluate(_FakeOp(op), "forward")
    assert unit.device_lost
    assert (unit.failed, calls) == (1, 1)


def test_a_sample_that_the_cpu_rejects_does_not_count() -> None:
    samples = [
        SampleInput(torch.ones(2), args=(torch.ones(3),)),  # cannot be broadcast
        SampleInput(torch.ones(2), args=(torch.ones(2),)),
    ]
    unit = _evaluate(_FakeOp(_add, samples), "forward")
    assert (unit.passed, unit.failed, unit.skipped, unit.accepted) == (1, 0, 1, 0)


def test_what_only_the_device_accepts_is_recorded() -> None:
    calls = 0

    def op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("only the first, the reference")
        return x + y

    unit = _evaluate(_FakeOp(op), "forward")
    assert (unit.passed, unit.skipped, unit.accepted) == (2, 1, 1)
    assert unit.first_accepted == "torch.float32 sample 0"


def test_a_limit_is_of_counted_samples_and_is_told() -> None:
    bad = SampleInput(torch.ones(2), args=(torch.ones(3),))
    good = [SampleInput(torch.ones(2), args=(torch.ones(2),)) for _ in range(3)]
    unit = _evaluate(_FakeOp(_add, [bad, *good]), "forward", limit=2)
    assert (unit.passed, unit.skipped, unit.truncated) == (2, 1, True)
    unit = _evaluate(_FakeOp(_add, [bad, *good]), "forward", limit=3)
    assert (unit.passed, unit.truncated) == (3, False)


def test_samples_do_not_depend_on_the_calls_between_them() -> None:
    seen: dict[str, list[torch.Tensor]] = {"few draws": [], "many draws": []}
    for name, draws in (("few draws", 1), ("many draws", 99)):

        def op(x: torch.Tensor, y: torch.Tensor, name: str = name, draws: int = draws) -> Any:
            seen[name].append(x.clone())
            return torch.rand(draws)

        assert _evaluate(_FakeOp(op), "forward").ok
    for few, many in zip(seen["few draws"], seen["many draws"], strict=True):
        assert torch.equal(few, many)


def test_a_failing_sample_generator_is_a_failure() -> None:
    class Failing(_FakeOp):
        def sample_inputs_func(self, *arguments: Any) -> Iterator[SampleInput]:
            yield SampleInput(torch.ones(1), args=(torch.ones(1),))
            raise ValueError("no more")

    unit = _evaluate(Failing(_add), "forward")
    assert (unit.passed, unit.failed, unit.failures[0].kind) == (1, 1, "samples")


class _WrongBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient * (2 if _on_device else 1), None


def test_a_wrong_gradient_is_seen() -> None:
    op = _FakeOp(_WrongBackward.apply)
    assert _evaluate(op, "forward").ok
    for name in ("grad", "grad64"):
        unit = _evaluate(op, name)
        assert (unit.passed, unit.failed) == (0, 3)


def test_a_lost_gradient_is_seen() -> None:
    unit = _evaluate(_FakeOp(lambda x, y: (x.detach() if _on_device else x) + y), "grad")
    assert unit.failed == 3
    assert "NotASample" in unit.failures[0].message


def test_what_has_no_gradient_is_no_gradient_sample() -> None:
    unit = _evaluate(_FakeOp(lambda x, y: x.detach() + y), "grad")
    assert (unit.counted, unit.skipped) == (0, 0)


def _out_not_written(x: torch.Tensor, y: torch.Tensor, out: Any = None) -> torch.Tensor:
    return out if out is not None and _on_device else torch.add(x, y, out=out)


def _out_not_returned(x: torch.Tensor, y: torch.Tensor, out: Any = None) -> torch.Tensor:
    result = torch.add(x, y, out=out)
    return result.clone() if _on_device else result


def _out_restrided(x: torch.Tensor, y: torch.Tensor, out: Any = None) -> torch.Tensor:
    if out is not None and _on_device:
        out.set_(torch.empty(out.shape, dtype=out.dtype))
    return torch.add(x, y, out=out)


@pytest.mark.parametrize("op", [_out_not_written, _out_not_returned, _out_restrided])
def test_wrong_handling_of_out_is_seen(op: Callable[..., Any]) -> None:
    unit = _evaluate(_FakeOp(op, supports_out=True), "out")
    assert unit.failed >= 6, unit  # float32 and float64, three samples each


def test_out_is_tried_empty_sized_and_strided() -> None:
    seen = set()

    def op(x: torch.Tensor, y: torch.Tensor, out: Any = None) -> torch.Tensor:
        if out is not None:
            seen.add("empty" if not out.numel() else "sized" if out.is_contiguous() else "strided")
        return torch.add(x, y, out=out)

    assert _evaluate(_FakeOp(op, supports_out=True), "out").ok
    assert seen == {"empty", "sized", "strided"}


def test_a_wrong_in_place_variant_is_seen() -> None:
    right = _FakeOp(_add, inplace_variant=torch.Tensor.add_)
    assert _evaluate(right, "inplace").passed == 6
    wrong = _FakeOp(_add, inplace_variant=lambda x, y: x + y if _on_device else x.add_(y))
    assert _evaluate(wrong, "inplace").failed == 6


def test_noncontiguous_inputs_have_gaps() -> None:
    strides = set()

    def op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        strides.update({x.stride()[-1], y.stride()[-1]})
        return x + y

    assert _evaluate(_FakeOp(op), "noncontiguous").ok
    assert strides == {2}


def test_an_operator_without_float32_runs_with_what_it_has() -> None:
    op = _FakeOp(_add, dtypes=frozenset({torch.int16, torch.int64}))
    assert PASSES["forward"].dtypes_of(op) == [torch.int64]
    assert PASSES["bfloat16"].dtypes_of(op) == []
    assert PASSES["forward"].dtypes_of(_FakeOp(_add, dtypes=frozenset())) == []
