"""Owns: tests of one call with tensors of several devices: what is refused, how, what is allowed.

The rules are those of CUDA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn import functional

import torch_fl  # noqa: F401  (makes the devices)

if TYPE_CHECKING:
    from collections.abc import Callable

ZERO, ONE, CPU = "flagos:0", "flagos:1", "cpu"
PAIRS = [(ZERO, ONE), (ONE, ZERO), (ZERO, CPU), (CPU, ONE)]


def _ones(device: str, *shape: int) -> torch.Tensor:
    return torch.ones(*(shape or (4, 4)), device=device)


def _long(device: str, *numbers: int) -> torch.Tensor:
    return torch.tensor(numbers or (0, 1, 0, 1), device=device)


def _mask(device: str) -> torch.Tensor:
    return torch.tensor([True, False, True, False], device=device)


# name: a call with one tensor on device a and another on device b.
MIXED: dict[str, Callable[[str, str], object]] = {
    "add": lambda a, b: _ones(a) + _ones(b),
    "sub": lambda a, b: _ones(a) - _ones(b),
    "mul of another dtype": lambda a, b: _ones(a) * _ones(b).double(),
    "div": lambda a, b: _ones(a) / _ones(b),
    "pow": lambda a, b: _ones(a) ** _ones(b),
    "eq": lambda a, b: _ones(a) == _ones(b),
    "maximum": lambda a, b: torch.maximum(_ones(a), _ones(b)),
    "logical_and": lambda a, b: torch.logical_and(_ones(a), _ones(b)),
    "atan2": lambda a, b: torch.atan2(_ones(a), _ones(b)),
    "addcmul": lambda a, b: torch.addcmul(_ones(a), _ones(b), _ones(a)),
    "addcdiv": lambda a, b: torch.addcdiv(_ones(a), _ones(a), _ones(b)),
    "lerp": lambda a, b: torch.lerp(_ones(a), _ones(b), 0.5),
    "clamp": lambda a, b: _ones(a).clamp(_ones(b), None),
    "where": lambda a, b: torch.where(_mask(a), _ones(a), _ones(b)),
    "where, condition": lambda a, b: torch.where(_mask(a), _ones(b), _ones(b)),
    "mm": lambda a, b: torch.mm(_ones(a), _ones(b)),
    "matmul": lambda a, b: _ones(a) @ _ones(b),
    "mv": lambda a, b: torch.mv(_ones(a), _ones(b, 4)),
    "dot": lambda a, b: torch.dot(_ones(a, 4), _ones(b, 4)),
    "outer": lambda a, b: torch.outer(_ones(a, 4), _ones(b, 4)),
    "bmm": lambda a, b: torch.bmm(_ones(a, 2, 3, 4), _ones(b, 2, 4, 3)),
    "addmm": lambda a, b: torch.addmm(_ones(b), _ones(a), _ones(a)),
    "baddbmm": lambda a, b: torch.baddbmm(_ones(a, 2, 3, 3), _ones(a, 2, 3, 4), _ones(b, 2, 4, 3)),
    "einsum": lambda a, b: torch.einsum("ij,jk->ik", _ones(a), _ones(b)),
    "linear": lambda a, b: functional.linear(_ones(a), _ones(b)),
    "linear, bias": lambda a, b: functional.linear(_ones(a), _ones(a), _ones(b, 4)),
    "conv2d": lambda a, b: functional.conv2d(_ones(a, 1, 2, 5, 5), _ones(b, 3, 2, 3, 3)),
    "conv2d, bias": lambda a, b: functional.conv2d(
        _ones(a, 1, 2, 5, 5), _ones(a, 3, 2, 3, 3), _ones(b, 3)
    ),
    "layer_norm": lambda a, b: functional.layer_norm(_ones(a), (4,), _ones(b, 4)),
    "group_norm": lambda a, b: functional.group_norm(_ones(a), 2, _ones(b, 4)),
    "batch_norm": lambda a, b: functional.batch_norm(_ones(a), _ones(b, 4), _ones(b, 4)),
    "prelu": lambda a, b: functional.prelu(_ones(a), _ones(b, 4)),
    "embedding": lambda a, b: functional.embedding(_long(a), _ones(b)),
    "cross_entropy": lambda a, b: functional.cross_entropy(_ones(a), _long(b)),
    "cross_entropy, weight": lambda a, b: functional.cross_entropy(_ones(a), _long(a), _ones(b, 4)),
    "mse_loss": lambda a, b: functional.mse_loss(_ones(a), _ones(b)),
    "attention": lambda a, b: functional.scaled_dot_product_attention(
        _ones(a, 1, 1, 4, 8), _ones(b, 1, 1, 4, 8), _ones(a, 1, 1, 4, 8)
    ),
    "cat": lambda a, b: torch.cat([_ones(a), _ones(b)]),
    "stack": lambda a, b: torch.stack([_ones(a), _ones(a), _ones(b)]),
    "hstack": lambda a, b: torch.hstack([_ones(a), _ones(b)]),
    "gather": lambda a, b: _ones(a).gather(0, _long(b).view(1, 4)),
    "scatter, index": lambda a, b: _ones(a).scatter(0, _long(b).view(1, 4), 1.0),
    "scatter, source": lambda a, b: _ones(a).scatter(0, _long(a).view(1, 4), _ones(b)),
    "scatter_add": lambda a, b: _ones(a).scatter_add(0, _long(a).view(1, 4), _ones(b)),
    "index_select": lambda a, b: torch.index_select(_ones(a), 0, _long(b)),
    "index_add": lambda a, b: _ones(a).index_add(0, _long(b), _ones(a)),
    "index_copy": lambda a, b: _ones(a).index_copy(0, _long(a), _ones(b)),
    "index_fill": lambda a, b: _ones(a).index_fill(0, _long(b), 1.0),
    "take": lambda a, b: torch.take(_ones(a), _long(b)),
    "take_along_dim": lambda a, b: torch.take_along_dim(_ones(a), _long(b).view(1, 4), 0),
    "masked_fill": lambda a, b: _ones(a).masked_fill(_mask(b), 1.0),
    "masked_select": lambda a, b: torch.masked_select(_ones(a), _mask(b)),
    "masked_scatter": lambda a, b: _ones(a).masked_scatter(_mask(a), _ones(b)),
    "index_put, value": lambda a, b: _ones(a).index_put((_long(a),), _ones(b)),
    "searchsorted": lambda a, b: torch.searchsorted(_ones(a, 4), _ones(b, 4)),
    "bucketize": lambda a, b: torch.bucketize(_ones(a, 4), _ones(b, 4)),
    "isin": lambda a, b: torch.isin(_ones(a, 4), _ones(b, 4)),
    "equal": lambda a, b: torch.equal(_ones(a), _ones(b)),
    "cdist": lambda a, b: torch.cdist(_ones(a), _ones(b)),
    "linalg.solve": lambda a, b: torch.linalg.solve(_ones(a) + torch.eye(4, device=a), _ones(b)),
    "cholesky_solve": lambda a, b: torch.cholesky_solve(_ones(a), _ones(b)),
    "complex": lambda a, b: torch.complex(_ones(a), _ones(b)),
    "polar": lambda a, b: torch.polar(_ones(a), _ones(b)),
    "add_": lambda a, b: _ones(a).add_(_ones(b)),
    "mul_ by one number there": lambda a, b: _ones(a).mul_(_ones(b, 1)),
    "addmm_": lambda a, b: _ones(a).addmm_(_ones(a), _ones(b)),
    "masked_fill_": lambda a, b: _ones(a).masked_fill_(_mask(b), 1.0),
    "add, out": lambda a, b: torch.add(_ones(a), _ones(a), out=_ones(b)),
    "mm, out": lambda a, b: torch.mm(_ones(a), _ones(a), out=_ones(b)),
    "cat, out": lambda a, b: torch.cat([_ones(a), _ones(a)], out=_ones(b, 8, 4)),
    "sum, out": lambda a, b: torch.sum(_ones(a), 0, out=_ones(b, 4)),
    "exp, out": lambda a, b: torch.exp(_ones(a), out=_ones(b)),
    "sort, out": lambda a, b: torch.sort(_ones(a), out=(_ones(b), _ones(b).long())),
    "lstm": lambda a, b: torch.nn.LSTM(4, 4).to(a)(_ones(b, 2, 3, 4)),
}


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
@pytest.mark.parametrize("name", MIXED)
def test_tensors_of_two_devices_are_refused_and_both_are_named(
    name: str, pair: tuple[str, str]
) -> None:
    with pytest.raises((RuntimeError, ValueError)) as caught:
        MIXED[name](*pair)
    text = str(caught.value)
    for device in pair:
        assert device in text, text
    assert "device" in text.lower()
    if CPU not in pair:
        assert "cpu" not in text.lower(), text
    assert "Exception raised from" not in text or "cpu" not in text.split("Exception")[0].lower()


WORDS: dict[str, tuple[Callable[[], object], str]] = {
    "add": (
        lambda: _ones(ZERO) + _ones(ONE),
        "Expected all tensors to be on the same device, but found at least two devices, "
        "flagos:0 and flagos:1!",
    ),
    "add of CPU": (
        lambda: _ones(ONE) + _ones(CPU),
        "Expected all tensors to be on the same device, but found at least two devices, "
        "flagos:1 and cpu!",
    ),
    "mm": (
        lambda: torch.mm(_ones(ZERO), _ones(ONE)),
        "Expected all tensors to be on the same device, but got mat2 is on flagos:1, different "
        "from other tensors on flagos:0 (when checking argument in method wrapper_flagos_mm)",
    ),
    "cat": (
        lambda: torch.cat([_ones(ZERO), _ones(ONE)]),
        "Expected all tensors to be on the same device, but got tensors is on flagos:1, different "
        "from other tensors on flagos:0 (when checking argument in method wrapper_flagos_cat)",
    ),
    "index": (
        lambda: _ones(ZERO)[_long(ONE)],
        "indices should be either on cpu or on the same device as the indexed tensor (flagos:0)",
    ),
    "index of a CPU tensor": (
        lambda: _ones(CPU)[_long(ONE)],
        "indices should be either on cpu or on the same device as the indexed tensor (cpu)",
    ),
}


@pytest.mark.parametrize("case", WORDS)
def test_the_words_are_those_of_pytorch(case: str) -> None:
    call, words = WORDS[case]
    with pytest.raises(RuntimeError) as caught:
        call()
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize("place", [ONE, CPU])
@pytest.mark.parametrize("cell", ["LSTMCell", "GRUCell"])
def test_states_of_recurrent_cells_elsewhere_are_refused(cell: str, place: str) -> None:
    module = getattr(torch.nn, cell)(4, 4).to(ZERO)
    state = _ones(place)
    states = (_ones(ZERO), state) if cell == "LSTMCell" else state
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        module(_ones(ZERO), states)


def test_a_refused_call_changes_nothing() -> None:
    x, out = _ones(ZERO), _ones(ONE)
    for call in (
        lambda: x.add_(_ones(ONE)),
        lambda: torch.mul(x, 3, out=out),
        lambda: x.mul_(_ones(CPU)),
        lambda: x.index_put_((_long(ZERO),), _ones(ONE) * 9),
        lambda: x.masked_fill_(_mask(ONE), 9.0),
    ):
        with pytest.raises(RuntimeError):
            call()
    assert x.eq(1).all()
    assert out.eq(1).all()
    assert x._version == 0


# -- zero-dimensional tensors


def _scalar(device: str, number: float = 3.0) -> torch.Tensor:
    return torch.tensor(number, device=device)


WITH_CPU_SCALAR: dict[str, Callable[[str, str], torch.Tensor]] = {
    "add": lambda d, s: _ones(d) + _scalar(s),
    "added to": lambda d, s: _scalar(s) + _ones(d),
    "mul": lambda d, s: _ones(d) * _scalar(s),
    "div": lambda d, s: _scalar(s) / _ones(d),
    "pow": lambda d, s: _ones(d) ** _scalar(s),
    "lt": lambda d, s: _ones(d) < _scalar(s),
    "bitwise_and": lambda d, s: _long(d) & torch.tensor(3, device=s),
    "remainder": lambda d, s: torch.remainder(_ones(d), _scalar(s)),
    "maximum": lambda d, s: torch.maximum(_ones(d), _scalar(s)),
    "add_": lambda d, s: _ones(d).add_(_scalar(s)),
    "mul_": lambda d, s: _ones(d).mul_(_scalar(s)),
    "add, out": lambda d, s: torch.add(_ones(d), _scalar(s), out=_ones(d)),
    "add of a 0-dim": lambda d, s: _scalar(d) + _scalar(s),
    "where, self": lambda d, s: torch.where(_mask(d), _scalar(s), _ones(d)),
    "where, other": lambda d, s: torch.where(_mask(d), _ones(d), _scalar(s)),
    "where, both": lambda d, s: torch.where(_mask(d), _scalar(s), _scalar(s)),
    "masked_fill": lambda d, s: _ones(d).masked_fill(_mask(d), _scalar(s)),
    "masked_fill_": lambda d, s: _ones(d).masked_fill_(_mask(d), _scalar(s)),
    "index_put": lambda d, s: _ones(d).index_put((_long(d),), _scalar(s)),
    "index_put_": lambda d, s: _ones(d).index_put_((_long(d),), _scalar(s)),
    "setitem": lambda d, s: _set(_ones(d), _scalar(s)),
    "fill_": lambda d, s: _ones(d).fill_(_scalar(s)),
    "copy_": lambda d, s: _ones(d).copy_(_scalar(s)),
    "index_fill": lambda d, s: _ones(d).index_fill(0, _long(d), _scalar(s)),
    "lerp": lambda d, s: torch.lerp(_ones(d), _ones(d) * 2, _scalar(s, 0.5)),
    "addcmul": lambda d, s: torch.addcmul(_ones(d), _ones(d), _scalar(s)),
    "foreach_mul": lambda d, s: torch._foreach_mul([_ones(d), _ones(d)], _scalar(s))[1],
}


def _set(tensor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    tensor[1:3] = value
    return tensor


@pytest.mark.parametrize("name", WITH_CPU_SCALAR)
def test_a_zero_dimensional_cpu_tensor_may_join(name: str) -> None:
    expected = WITH_CPU_SCALAR[name](CPU, CPU)
    actual = WITH_CPU_SCALAR[name](ONE, CPU)
    assert actual.device == torch.device(ONE)
    assert actual.dtype == expected.dtype
    assert torch.equal(actual.cpu(), expected)


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.addmm(_scalar(CPU), _ones(ZERO), _ones(ZERO)),
        lambda: _ones(ZERO).clamp(_scalar(CPU), None),
        lambda: torch.cat([_ones(ZERO, 1), _ones(CPU, 1)]),
        lambda: torch.stack([_scalar(ZERO), _scalar(CPU)]),
        lambda: torch.index_select(_ones(ZERO), 0, torch.tensor(0)),
        lambda: torch.gather(_scalar(ZERO), 0, torch.tensor(0)),
        lambda: functional.embedding(torch.tensor(0), _ones(ZERO)),
        lambda: functional.nll_loss(_ones(ZERO, 4), torch.tensor(0)),
        lambda: functional.prelu(_ones(ZERO), _scalar(CPU)),
        lambda: torch.equal(_scalar(ZERO), _scalar(CPU)),
    ],
    ids=[
        "addmm",
        "clamp",
        "cat",
        "stack",
        "index_select",
        "gather",
        "embedding",
        "nll_loss",
        "prelu",
        "equal",
    ],
)
def test_it_may_not_where_all_must_be_on_one_device(call: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError, match="on the same device") as caught:
        call()
    assert ZERO in str(caught.value)
    assert "cpu" in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda: _scalar(CPU).add_(_scalar(ZERO)),
        lambda: _scalar(CPU).add_(_ones(ZERO)),
        lambda: torch.add(_ones(ZERO), 1, out=_scalar(CPU)),
        lambda: torch.add(_scalar(ZERO), 1, out=_scalar(CPU)),
    ],
    ids=["add_ of 0-dim", "add_ of many", "out", "out of 0-dim"],
)
def test_it_may_not_be_what_is_written(call: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError):
        call()


@pytest.mark.parametrize("other", [ZERO, ONE])
def test_a_zero_dimensional_tensor_of_another_device_may_not_join(other: str) -> None:
    here = ONE if other == ZERO else ZERO
    for call in (
        lambda: _ones(here) + _scalar(other),
        lambda: _scalar(other) * _ones(here),
        lambda: _ones(here).mul_(_scalar(other)),
        lambda: torch.maximum(_ones(here), _scalar(other)),
        lambda: _ones(CPU) + _scalar(other),
    ):
        with pytest.raises(RuntimeError) as caught:
            call()
        assert other in str(caught.value)


# -- what may span devices


def test_indices_may_be_on_the_cpu() -> None:
    x = torch.arange(12.0, device=ONE).view(4, 3)
    index, mask = torch.tensor([3, 0]), torch.tensor([True, False, False, True])
    expected = torch.arange(12.0).view(4, 3)
    for key in (index, mask, (index, torch.tensor([1, 2])), (slice(None), torch.tensor([0, 2]))):
        result = x[key]
        assert result.device == torch.device(ONE)
        assert torch.equal(result.cpu(), expected[key])
    x[index] = -1.0
    x[mask, 0] = torch.tensor([5.0, 6.0], device=ONE)
    x.index_put_((index,), torch.ones(2, 3, device=ONE), accumulate=True)
    expected[index] = -1.0
    expected[mask, 0] = torch.tensor([5.0, 6.0])
    expected.index_put_((index,), torch.ones(2, 3), accumulate=True)
    assert torch.equal(x.cpu(), expected)


@pytest.mark.parametrize("place", [ZERO, ONE, CPU])
@pytest.mark.parametrize("index", [ZERO, ONE, CPU])
def test_indices_to_write_to_may_be_anywhere(place: str, index: str) -> None:
    x = torch.zeros(4, 2, device=place)
    x.index_put_((torch.tensor([3, 0], device=index),), torch.ones(2, 2, device=place))
    assert x.device == torch.device(place)
    assert x.tolist() == [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0]]


def test_a_cpu_tensor_takes_one_number_from_the_device() -> None:
    x = torch.zeros(4)
    x[0] = _scalar(ONE)
    x.index_put_((torch.tensor([2]),), _scalar(ZERO))
    x[3:].fill_(_scalar(ZERO))
    assert x.tolist() == [3.0, 0.0, 3.0, 3.0]


def test_the_number_of_masked_fill_may_be_anywhere() -> None:
    for place in (ZERO, ONE, CPU):
        x = torch.zeros(4, device=ZERO).masked_fill_(_mask(ZERO), _scalar(place))
        assert x.tolist() == [3.0, 0.0, 3.0, 0.0], place
    with pytest.raises(RuntimeError):
        torch.zeros(4).masked_fill_(_mask(CPU), _scalar(ZERO))


def test_a_slice_may_be_set_from_anywhere() -> None:
    x = torch.zeros(3, 4, device=ZERO)
    x[0] = torch.arange(4.0, device=ONE)
    x[1] = torch.arange(4.0)
    x[2].copy_(torch.tensor(7.0, device=ONE))
    assert x.tolist() == [[0.0, 1.0, 2.0, 3.0]] * 2 + [[7.0] * 4]


FOREACH: dict[str, Callable[[list[torch.Tensor]], object]] = {
    "add of a number": lambda xs: torch._foreach_add(xs, 2),
    "add": lambda xs: torch._foreach_add(xs, xs),
    "mul of a list": lambda xs: torch._foreach_mul(xs, [2.0, 3.0, 4.0]),
    "sqrt": torch._foreach_sqrt,
    "norm": torch._foreach_norm,
    "addcdiv": lambda xs: torch._foreach_addcdiv(xs, xs, xs, value=2),
    "lerp": lambda xs: torch._foreach_lerp(xs, xs, 0.25),
    "max": torch._foreach_max,
    "exp_": lambda xs: torch._foreach_exp_(xs) or xs,
    "mul_": lambda xs: torch._foreach_mul_(xs, xs) or xs,
    "zero_": lambda xs: torch._foreach_zero_(xs) or xs,
    "clamp_max_": lambda xs: torch._foreach_clamp_max_(xs, 2.0) or xs,
}


@pytest.mark.parametrize("devices", [(ZERO, ONE, ZERO), (ONE, ZERO, CPU)], ids=" ".join)
@pytest.mark.parametrize("name", FOREACH)
def test_foreach_spans_devices_and_each_result_stays_on_its_own(
    name: str, devices: tuple[str, str, str]
) -> None:
    def results(*places: str) -> list[torch.Tensor]:
        numbers = ([1.0, 2.0], [3.0], [4.0, 5.0, 6.0])
        made = zip(numbers, places, strict=True)
        return list(FOREACH[name]([torch.tensor(n, device=place) for n, place in made]))

    actual, expected = results(*devices), results(CPU, CPU, CPU)
    assert [result.device for result in actual] == [torch.device(place) for place in devices]
    for left, right in zip(actual, expected, strict=True):
        assert torch.equal(left.cpu(), right)


def test_foreach_copies_between_devices() -> None:
    here = [torch.zeros(2, device=ZERO), torch.zeros(3, device=ONE)]
    torch._foreach_copy_(here, [torch.ones(2, device=ONE), torch.full((3,), 2.0)])
    assert [x.tolist() for x in here] == [[1.0] * 2, [2.0] * 3]
    assert [x.device.index for x in here] == [0, 1]


def test_gradients_are_clipped_over_devices() -> None:
    def clipped(*places: str) -> tuple[float, list[list[float]]]:
        parameters = [torch.nn.Parameter(torch.ones(3, device=place)) for place in places]
        for i, parameter in enumerate(parameters):
            parameter.grad = torch.full((3,), float(i + 1), device=parameter.device)
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        return norm.item(), [parameter.grad.tolist() for parameter in parameters]

    assert clipped(ZERO, ONE) == clipped(CPU, CPU)


def test_tensor_split_and_repeat_interleave_take_cpu_tensors_where_cuda_does() -> None:
    x = torch.arange(6, device=ONE)
    parts = torch.tensor_split(x, torch.tensor([2, 4]))
    assert [part.tolist() for part in parts] == [[0, 1], [2, 3], [4, 5]]
    assert {part.device for part in parts} == {torch.device(ONE)}


def test_packing_sequences_takes_lengths_of_the_cpu() -> None:
    padded = torch.arange(12.0, device=ONE).view(3, 2, 2)
    packed = torch.nn.utils.rnn.pack_padded_sequence(padded, torch.tensor([3, 2]))
    assert packed.data.device == torch.device(ONE)
    assert packed.batch_sizes.device.type == CPU
    back, lengths = torch.nn.utils.rnn.pad_packed_sequence(packed)
    assert lengths.tolist() == [3, 2]
    assert back.device == torch.device(ONE)
