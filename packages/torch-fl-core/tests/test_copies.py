"""Owns: tests of copies between CPU and flagos: dtypes, shapes, strides, overlap, lazy bits.

Expected values are those of the same copy on the CPU, bit for bit. Pinned memory and what `.to`
returns are in test_to.py; copies between two devices in two_devices/.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

import pytest
import torch

import torch_fl  # noqa: F401  (makes the device)

if TYPE_CHECKING:
    from collections.abc import Callable

    View = Callable[[torch.Tensor], torch.Tensor]

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
FP8 = [
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
]
SIGNED = [torch.int8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint8, torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex128, torch.complex64, torch.complex32]
DTYPES = [*FLOATS, *FP8, *SIGNED, *UNSIGNED, *COMPLEX, torch.bool]
N = 131  # more than a vector, and no multiple of one


def _source(dtype: torch.dtype) -> torch.Tensor:
    """Numbers that every dtype can hold, and for floating point the special ones as well."""
    small = torch.arange(N, dtype=torch.float64) % 97
    if dtype.is_complex:
        values = torch.complex(small, -small)
        values[:3] = torch.tensor([complex(math.nan, 1), complex(-0.0, math.inf), 1e30j])
        return values.to(dtype)
    if dtype in FLOATS:
        small[:6] = torch.tensor([-0.0, 0.1, -2.5, 1e-30, 65000.0, 3e38])
    return small.to(dtype)


def _same_bits(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert actual.stride() == expected.stride()
    left, right = (t.cpu().resolve_conj().resolve_neg().reshape(-1) for t in (actual, expected))
    assert torch.equal(left.view(torch.uint8), right.view(torch.uint8))


def _outcome(copy: Callable[[], torch.Tensor]) -> torch.Tensor | type[Exception]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Casting complex values to real|ComplexHalf")
        try:
            return copy()
        except Exception as error:
            return type(error)


def _as_on_cpu(expected: torch.Tensor | type[Exception], copy: Callable[[], torch.Tensor]) -> None:
    actual = _outcome(copy)
    if isinstance(expected, torch.Tensor):
        assert isinstance(actual, torch.Tensor), actual
        _same_bits(actual, expected)
    else:
        assert actual is expected


@pytest.mark.parametrize("to", DTYPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_pair_of_dtypes_in_every_direction(dtype: torch.dtype, to: torch.dtype) -> None:
    source = _source(dtype)
    there = source.to("flagos")
    _same_bits(there, source)
    expected = _outcome(lambda: source.to(to))
    _as_on_cpu(expected, lambda: source.to("flagos", to))
    _as_on_cpu(expected, lambda: there.to("cpu", to))
    _as_on_cpu(expected, lambda: there.to(to))

    def into(device: str) -> torch.Tensor:
        return torch.full((N,), 7.0).to(to).to(device)

    expected = _outcome(lambda: into("cpu").copy_(source))
    _as_on_cpu(expected, lambda: into("flagos").copy_(source))
    _as_on_cpu(expected, lambda: into("cpu").copy_(there))
    _as_on_cpu(expected, lambda: into("flagos").copy_(there))


def test_what_the_dtypes_can_hold_survives_a_round_trip() -> None:
    every_byte = torch.arange(256, dtype=torch.uint8)
    for dtype in (*FP8, torch.float4_e2m1fn_x2):
        there = every_byte.view(dtype).to("flagos")
        assert torch.equal(there.view(torch.uint8).cpu(), every_byte), dtype
    two_bytes = torch.arange(1 << 16).to(torch.int32).to(torch.uint16)
    for dtype in (torch.float16, torch.bfloat16, torch.int16):
        there = two_bytes.view(dtype).to("flagos")
        assert torch.equal(there.cpu().view(torch.uint16), two_bytes), dtype


# -- shapes and strides


def _base(*shape: int) -> torch.Tensor:
    return torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)


def _strided(t: torch.Tensor) -> torch.Tensor:
    return t[1::2, :, ::3]


# name: (shape and view of the destination, shape and view of the source)
LAYOUTS: dict[str, tuple[tuple[int, ...], View, tuple[int, ...], View]] = {
    "plain": ((4, 5), lambda t: t, (4, 5), lambda t: t),
    "one number": ((), lambda t: t, (), lambda t: t),
    "one number into many": ((4, 5), lambda t: t, (), lambda t: t),
    "empty": ((0,), lambda t: t, (0,), lambda t: t),
    "empty of many dimensions": ((3, 0, 2), lambda t: t, (1, 0, 1), lambda t: t),
    "broadcast": ((3, 4, 5), lambda t: t, (4, 1), lambda t: t),
    "expanded source": ((3, 4), lambda t: t, (1, 4), lambda t: t.expand(3, 4)),
    "transposed source": ((4, 5), lambda t: t, (5, 4), lambda t: t.t()),
    "transposed destination": ((5, 4), lambda t: t.t(), (4, 5), lambda t: t),
    "both transposed": ((5, 4), lambda t: t.t(), (5, 4), lambda t: t.t()),
    "strided source": ((2, 3, 3), lambda t: t, (4, 3, 9), _strided),
    "strided destination": ((4, 3, 9), _strided, (2, 3, 3), lambda t: t),
    "both strided": ((4, 3, 9), _strided, (4, 3, 9), _strided),
    "slices with offsets": ((10,), lambda t: t[3:7], (12,), lambda t: t[5:9]),
    "channels last": (
        (2, 3, 4, 5),
        lambda t: t.contiguous(memory_format=torch.channels_last),
        (2, 3, 4, 5),
        lambda t: t,
    ),
    "as_strided": (
        (20,),
        lambda t: t.as_strided((3, 4), (5, 1), 2),
        (20,),
        lambda t: t.as_strided((3, 4), (1, 3), 1),
    ),
    "unfolded source": ((8, 3), lambda t: t, (10,), lambda t: t.unfold(0, 3, 1)),
    "flipped": ((6,), lambda t: t, (6,), lambda t: t.flip(0)),
    "diagonal": ((4, 4), lambda t: t.diagonal(), (4,), lambda t: t),
}
DIRECTIONS = [("flagos", "cpu"), ("cpu", "flagos"), ("flagos", "flagos")]


@pytest.mark.parametrize("non_blocking", [False, True])
@pytest.mark.parametrize("direction", DIRECTIONS, ids=lambda d: f"{d[1]}-to-{d[0]}")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_layouts(
    layout: str, direction: tuple[str, str], non_blocking: bool, dtype: torch.dtype
) -> None:
    to_shape, to_view, from_shape, from_view = LAYOUTS[layout]

    def copied(to: str, source: str) -> torch.Tensor:
        whole = torch.full(to_shape, -1.0, device=to)
        to_view(whole).copy_(
            from_view(_base(*from_shape).to(dtype).to(source)), non_blocking=non_blocking
        )
        torch.flagos.synchronize()
        return whole

    whole = copied(*direction)
    assert whole.device.type == direction[0]
    _same_bits(whole, copied("cpu", "cpu"))


@pytest.mark.parametrize("direction", DIRECTIONS, ids=lambda d: f"{d[1]}-to-{d[0]}")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_to_keeps_strides_as_on_the_cpu(layout: str, direction: tuple[str, str]) -> None:
    _, _, shape, view = LAYOUTS[layout]
    there = view(_base(*shape).to(direction[1])).to(direction[0], copy=True)
    _same_bits(there, view(_base(*shape)).to("cpu", copy=True))


def test_a_copy_of_many_numbers() -> None:
    source = torch.arange(3_000_001, dtype=torch.int32)
    there = source.to("flagos")
    assert torch.equal(there.flip(0).cpu(), source.flip(0))
    assert torch.equal(there.to(torch.float64).cpu(), source.to(torch.float64))


# -- destinations and sources that overlap

OVERLAPS = {
    "the same": lambda t: t.copy_(t),
    "the same view": lambda t: t[2:8].copy_(t[2:8]),
    "partly, forward": lambda t: t[1:].copy_(t[:-1]),
    "partly, backward": lambda t: t[:-1].copy_(t[1:]),
    "partly, another dtype": lambda t: t.view(torch.int32)[1:].copy_(t[:-1]),
    "reversed": lambda t: t.copy_(t.flip(0)),
    "transposed": lambda t: t[:9].view(3, 3).copy_(t[:9].view(3, 3).t()),
    "an expanded destination": lambda t: t[:1].expand(4).copy_(t[:4]),
    "an expanded destination, one number": lambda t: t[:1].expand(4).copy_(t[3]),
    "fill of an expanded destination": lambda t: t[:1].expand(4).fill_(1),
    "added into itself, shifted": lambda t: t[1:].add_(t[:-1]),
    "added into itself, expanded": lambda t: t[:1].expand(4).add_(1),
    "out= over an argument": lambda t: torch.mul(t[:-1], 2, out=t[1:]),
}


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_overlapping_memory_is_treated_as_on_the_cpu(overlap: str) -> None:
    def outcome(device: str) -> tuple[str, list[float]]:
        t = torch.arange(12.0, device=device)
        try:
            OVERLAPS[overlap](t)
        except RuntimeError as error:
            return str(error), t.tolist()
        return "", t.tolist()

    expected, actual = outcome("cpu"), outcome("flagos")
    assert actual == expected


@pytest.mark.parametrize("direction", DIRECTIONS[:2], ids=lambda d: f"{d[1]}-to-{d[0]}")
def test_a_destination_that_overlaps_itself_is_refused(direction: tuple[str, str]) -> None:
    to = torch.zeros(1, device=direction[0]).expand(4)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        to.copy_(torch.ones(4, device=direction[1]))


@pytest.mark.parametrize("direction", DIRECTIONS, ids=lambda d: f"{d[1]}-to-{d[0]}")
def test_shapes_that_do_not_fit_are_refused_in_the_same_words(direction: tuple[str, str]) -> None:
    def error(to: str, source: str) -> str:
        with pytest.raises(RuntimeError) as caught:
            torch.zeros(3, 4, device=to).copy_(torch.zeros(3, 5, device=source))
        return str(caught.value)

    assert error(*direction) == error("cpu", "cpu")


# -- conjugate and negative views

LAZY: dict[str, View] = {
    "plain": lambda t: t,
    "conj": lambda t: t.conj(),
    "neg": lambda t: torch._neg_view(t),
    "conj and neg": lambda t: torch._neg_view(t.conj()),
    "conj of a transposed": lambda t: t.t().conj(),
    "conj of a slice": lambda t: t[1:, ::2].conj(),
    "imag of conj": lambda t: t.conj().imag,
    "H": lambda t: t.mH,
}


def _complex(dtype: torch.dtype) -> torch.Tensor:
    return torch.complex(_base(4, 4), _base(4, 4) + 0.5).to(dtype)


@pytest.mark.parametrize("direction", DIRECTIONS, ids=lambda d: f"{d[1]}-to-{d[0]}")
@pytest.mark.parametrize("source", LAZY)
@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_lazy_sources(dtype: torch.dtype, source: str, direction: tuple[str, str]) -> None:
    def moved(to: str, device: str, *more: torch.dtype) -> torch.Tensor:
        return LAZY[source](_complex(dtype).to(device)).to(to, *more, copy=True)

    for more in ((), (torch.complex128,)):
        expected = _outcome(lambda: moved("cpu", "cpu", *more))  # noqa: B023
        actual = _outcome(lambda: moved(*direction, *more))  # noqa: B023
        if isinstance(expected, torch.Tensor):
            assert isinstance(actual, torch.Tensor), actual
            _same_bits(actual, expected)
            assert (actual.is_conj(), actual.is_neg()) == (expected.is_conj(), expected.is_neg())
        else:
            assert actual is expected
            assert (dtype, source) == (torch.complex32, "conj and neg")


@pytest.mark.parametrize("direction", DIRECTIONS, ids=lambda d: f"{d[1]}-to-{d[0]}")
@pytest.mark.parametrize("source", ["plain", "conj", "neg", "conj and neg"])
@pytest.mark.parametrize("to", ["plain", "conj", "neg", "conj and neg"])
def test_lazy_destinations(to: str, source: str, direction: tuple[str, str]) -> None:
    def copied(to_device: str, from_device: str) -> tuple[torch.Tensor, torch.Tensor]:
        whole = torch.zeros(4, 4, dtype=torch.complex64, device=to_device)
        view = LAZY[to](whole)
        view.copy_(LAZY[source](_complex(torch.complex64).to(from_device)))
        return whole, view

    for actual, expected in zip(copied(*direction), copied("cpu", "cpu"), strict=True):
        assert (actual.is_conj(), actual.is_neg()) == (expected.is_conj(), expected.is_neg())
        _same_bits(actual, expected)


def test_a_conjugate_view_is_read_right_on_both_sides() -> None:
    z = torch.tensor([1 + 2j, 3 - 4j])
    there = z.to("flagos").conj()
    assert there.is_conj()
    assert there.tolist() == z.conj().tolist()
    assert there.cpu().tolist() == z.conj().tolist()
    assert z.conj().to("flagos").tolist() == z.conj().tolist()
    assert there[1].item() == 3 + 4j


# -- gradients, versions


@pytest.mark.parametrize("direction", DIRECTIONS, ids=lambda d: f"{d[1]}-to-{d[0]}")
def test_gradients_go_back_through_a_copy(direction: tuple[str, str]) -> None:
    to, source = direction
    x = torch.arange(3.0, device=source).requires_grad_()
    y = torch.zeros(2, 3, dtype=torch.float64, device=to)
    y.copy_(x)
    y.mul(torch.tensor([[1.0, 2, 3], [4, 5, 6]], device=to)).sum().backward()
    assert x.grad is not None
    assert x.grad.device.type == source
    assert x.grad.dtype == torch.float32
    assert x.grad.tolist() == [5.0, 7.0, 9.0]

    x = torch.arange(3.0, device=source).requires_grad_()
    (x.to(to, torch.float64) * 2).sum().backward()
    assert x.grad is not None
    assert x.grad.device.type == source
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


def test_a_copy_counts_as_one_change() -> None:
    for direction in [*DIRECTIONS, ("cpu", "cpu")]:
        to = torch.zeros(3, device=direction[0])
        to.copy_(torch.ones(3, device=direction[1]))
        assert to._version == 1, direction


def test_a_leaf_that_needs_gradients_is_not_overwritten() -> None:
    leaf = torch.zeros(3, device="flagos", requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        leaf.copy_(torch.ones(3))
    with torch.no_grad():
        leaf.copy_(torch.ones(3))
    assert leaf.tolist() == [1.0, 1.0, 1.0]
