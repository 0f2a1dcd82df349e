"""Owns: tests of copies from one device to the other."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import pytest
import torch

import torch_fl  # noqa: F401  (makes the devices)

ZERO, ONE = torch.device("flagos:0"), torch.device("flagos:1")
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int8, torch.int64, torch.uint16]
DTYPES += [torch.bool, torch.complex64, torch.float8_e4m3fn]
WAYS = [(ZERO, ONE), (ONE, ZERO)]


def _numbers(dtype: torch.dtype) -> torch.Tensor:
    return (torch.arange(60, dtype=torch.float32) % 50).reshape(3, 4, 5).to(dtype)


def _same(actual: torch.Tensor, expected: torch.Tensor, device: torch.device) -> None:
    assert actual.device == device
    assert actual.dtype == expected.dtype
    assert actual.stride() == expected.stride()
    left, right = (t.cpu().resolve_conj().reshape(-1) for t in (actual, expected))
    assert torch.equal(left.view(torch.uint8), right.view(torch.uint8))


@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("way", WAYS, ids=lambda w: f"{w[0].index}-to-{w[1].index}")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_pair_of_dtypes(
    dtype: torch.dtype, way: tuple[torch.device, torch.device], current: int
) -> None:
    source, to = way
    with torch.flagos.device(current), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Casting complex values to real")
        for other in DTYPES:
            here = _numbers(dtype)
            there = here.to(source)
            _same(there.to(to, other), here.to(other), to)
            _same(torch.empty(3, 4, 5, dtype=other, device=to).copy_(there), here.to(other), to)


@pytest.mark.parametrize("non_blocking", [False, True])
@pytest.mark.parametrize("way", WAYS, ids=lambda w: f"{w[0].index}-to-{w[1].index}")
def test_layouts(way: tuple[torch.device, torch.device], non_blocking: bool) -> None:
    source, to = way
    x = _numbers(torch.float32)
    views = {
        "transposed": lambda t: t.transpose(0, 2),
        "strided": lambda t: t[1:, ::2, 1::3],
        "expanded": lambda t: t[:, :1].expand(3, 4, 5),
        "empty": lambda t: t[:0],
        "one number": lambda t: t[0, 0, 0],
        "a slice": lambda t: t.view(-1)[7:20],
    }
    for view in views.values():
        moved = view(x.to(source)).to(to, non_blocking=non_blocking)
        _same(moved, view(x).to("cpu", copy=True), to)
        if view is views["expanded"]:
            continue  # it cannot be written to
        target, expected = torch.zeros(3, 4, 5, device=to), torch.zeros(3, 4, 5)
        view(target).copy_(view(x.to(source)), non_blocking=non_blocking)
        view(expected).copy_(view(x))
        _same(target, expected, to)
    target = torch.zeros(3, 4, 5, device=to)
    target.copy_(x.to(source)[:1, :, :1])
    assert torch.equal(target.cpu(), x[:1, :, :1].expand(3, 4, 5))


@pytest.mark.parametrize("way", WAYS, ids=lambda w: f"{w[0].index}-to-{w[1].index}")
def test_conj_and_neg(way: tuple[torch.device, torch.device]) -> None:
    source, to = way
    z = torch.tensor([1 + 2j, 3 - 4j])
    _same(z.to(source).conj().to(to), z.conj().resolve_conj(), to)
    _same(torch._neg_view(z.to(source)).to(to), -z, to)
    target = torch.zeros(2, dtype=torch.complex64, device=to)
    target.conj().copy_(z.to(source))
    _same(target, z.conj().resolve_conj(), to)


def test_to_and_its_kin() -> None:
    x = torch.arange(3.0, device=ZERO)
    assert x.to(ZERO) is x
    assert x.to("flagos") is x
    with torch.flagos.device(1):
        assert x.to("flagos").device == ONE, "no index: the current device"
        assert x.flagos().device == ONE
    moved = x.to(ONE)
    assert moved is not x
    assert moved.data_ptr() != x.data_ptr()
    assert moved.untyped_storage().device == ONE
    x.zero_()
    assert moved.tolist() == [0.0, 1.0, 2.0]
    assert moved.to(x).device == ZERO
    assert x.type_as(moved).device == ONE
    assert x.untyped_storage().flagos(1).device == ONE


@pytest.mark.parametrize("way", WAYS, ids=lambda w: f"{w[0].index}-to-{w[1].index}")
def test_gradients_come_back(way: tuple[torch.device, torch.device]) -> None:
    source, to = way
    x = torch.arange(3.0, device=source, requires_grad=True)
    (x.to(to).exp() * torch.tensor([1.0, 2.0, 3.0], device=to)).sum().backward()
    assert x.grad is not None
    assert x.grad.device == source
    expected = torch.arange(3.0).exp() * torch.tensor([1.0, 2.0, 3.0])
    assert torch.equal(x.grad.cpu(), expected)


def test_saved_deepcopied_and_pickled_tensors_keep_their_device() -> None:
    x = {"one": torch.arange(3.0, device=ONE), "zero": torch.ones(2, device=ZERO)}
    x["view"] = x["one"][1:]

    def check(loaded: dict[str, torch.Tensor], one: torch.device, zero: torch.device) -> None:
        assert loaded["one"].device == loaded["view"].device == one
        assert loaded["zero"].device == zero
        assert loaded["one"].tolist() == [0.0, 1.0, 2.0]
        loaded["view"].fill_(9.0)
        assert loaded["one"].tolist() == [0.0, 9.0, 9.0], "views still share"
        assert x["one"].tolist() == [0.0, 1.0, 2.0]

    check(copy.deepcopy(x), ONE, ZERO)
    check(copy.deepcopy(x), ONE, ZERO)
    pickled = pickle.loads(pickle.dumps(x))
    assert pickled["one"].device == ONE
    assert pickled["zero"].device == ZERO
    file = io.BytesIO()
    torch.save(x, file)

    def load(where: object) -> dict[str, torch.Tensor]:
        file.seek(0)
        return torch.load(file, map_location=where)

    cpu = torch.device("cpu")
    check(load(None), ONE, ZERO)
    check(load("cpu"), cpu, cpu)
    check(load("flagos:1"), ONE, ONE)
    check(load(ZERO), ZERO, ZERO)
    check(load({"flagos:1": "flagos:0", "flagos:0": "flagos:1"}), ZERO, ONE)
    check(load(lambda storage, location: storage.flagos(1)), ONE, ONE)
    with torch.flagos.device(1):
        check(load("flagos"), ONE, ONE)
