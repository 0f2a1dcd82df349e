"""Owns: tests of sizes, strides, offsets, dtypes and generators that cannot be: flagos says what
the CPU says, or does what the CPU does."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from memory_level import settled
from out_of_memory import wait_for_level
from torch.nn import functional

import torch_fl  # noqa: F401  (makes the device)

D = "flagos"
BIG = 2**62


def _x(d: str, *shape: int) -> torch.Tensor:
    return torch.arange(float(torch.Size(shape or (3, 4)).numel()), device=d).reshape(
        shape or (3, 4)
    )


def _storage(d: str) -> torch.UntypedStorage:
    return _x(d).untyped_storage()


SIZES: dict[str, Callable[[str], Any]] = {
    "a negative size": lambda d: torch.empty(-1, device=d),
    "one negative size": lambda d: torch.zeros(2, -3, 0, device=d),
    "negative and zero": lambda d: torch.ones((0, -1), device=d),
    "product past 2**63": lambda d: torch.empty(2**32, 2**32, device=d),
    "bytes past 2**63": lambda d: torch.empty(BIG, dtype=torch.float64, device=d),
    "product that wraps to zero": lambda d: torch.empty(2**32, 2**32, 0, device=d).shape,
    "huge and empty": lambda d: torch.empty(0, BIG, device=d).stride(),
    "huge, empty, and reduced": lambda d: torch.empty(0, 2**40, device=d).sum(),
    "size of no int": lambda d: torch.empty(2.5, device=d),  # type: ignore[call-overload]
    "size past 2**64": lambda d: torch.empty(2**65, device=d),
    "new_empty": lambda d: _x(d).new_empty(-2),
    "full": lambda d: torch.full((-2,), 1.0, device=d),
    "eye": lambda d: torch.eye(-2, device=d),
    "arange to infinity": lambda d: torch.arange(0, float("inf"), device=d),
    "arange of nan": lambda d: torch.arange(float("nan"), device=d),
    "arange of no step": lambda d: torch.arange(0, 5, 0, device=d),
    "linspace": lambda d: torch.linspace(0, 1, -5, device=d),
    "randperm": lambda d: torch.randperm(-1, device=d),
    "randperm in uint8": lambda d: torch.randperm(300, dtype=torch.uint8, device=d),
    "randint of nothing": lambda d: torch.randint(3, 3, (2,), device=d),
    "randint past its dtype": lambda d: torch.randint(0, 1000, (2,), dtype=torch.uint8, device=d),
    "tril_indices": lambda d: torch.tril_indices(-1, 2, device=d),
    "resize_": lambda d: _x(d).resize_(-1),
    "resize_ past 2**63": lambda d: _x(d).resize_(2**40, 2**40),
    "storage resize_": lambda d: _storage(d).resize_(-1),
    "view": lambda d: _x(d).view(-1, -1),
    "view of nothing": lambda d: torch.empty(0, device=d).view(-1, 0),
    "reshape": lambda d: _x(d).reshape(5, -1),
    "expand": lambda d: _x(d).expand(-2, 3, 4),
    "expand past 2**63": lambda d: _x(d, 1).expand(2**40, 2**40).numel(),
    "repeat": lambda d: _x(d).repeat(-1, 2),
    "repeat of too few": lambda d: _x(d).repeat(2),
    "tile of nothing": lambda d: _x(d).tile((0, 2)),
    "repeat_interleave": lambda d: torch.repeat_interleave(
        _x(d, 3), torch.tensor([1, -1, 2], device=d)
    ),
    "split": lambda d: _x(d).split(-1),
    "split sizes": lambda d: _x(d).split([1, 1]),
    "chunk": lambda d: _x(d).chunk(0),
    "narrow": lambda d: _x(d).narrow(0, 2, 2),
    "narrow backwards": lambda d: _x(d).narrow(0, 0, -1),
    "unfold": lambda d: _x(d).unfold(0, -1, 1),
    "select": lambda d: _x(d).select(0, -4),
    "diagonal": lambda d: _x(d).diagonal(0, 0, 0),
    "pad": lambda d: functional.pad(_x(d), (-3, -3)),
    "pool": lambda d: functional.avg_pool1d(_x(d), 0),
    "pool by a negative stride": lambda d: functional.max_pool1d(_x(d), 2, stride=-1),
    "a convolution of no kernel": lambda d: functional.conv1d(
        _x(d), torch.empty(2, 3, 0, device=d)
    ),
    "a convolution's stride": lambda d: functional.conv1d(_x(d), _x(d, 2, 3, 1), stride=0),
    "a convolution's padding": lambda d: functional.conv1d(_x(d), _x(d, 2, 3, 1), padding=-1),
    "interpolate": lambda d: functional.interpolate(_x(d, 1, 3, 4), size=0),
    "one_hot": lambda d: functional.one_hot(torch.tensor([1, 5], device=d), 3),
    "bincount": lambda d: torch.bincount(torch.tensor([-1], device=d)),
    "bincount of a length": lambda d: torch.bincount(torch.tensor([1], device=d), minlength=-1),
    "topk": lambda d: _x(d).topk(-1),
    "kthvalue": lambda d: _x(d).kthvalue(9),
    "cumsum": lambda d: _x(d).cumsum(2),
    "roll": lambda d: _x(d).roll(1, 5),
    "flip": lambda d: _x(d).flip(0, 0),
    "stack of nothing": lambda d: torch.stack([]),
    "cat of nothing": lambda d: torch.cat([torch.empty(0, device=d), torch.empty(0, device=d)]),
    "embedding of a negative word": lambda d: functional.embedding(
        torch.tensor([-1], device=d), _x(d)
    ),
    "multinomial": lambda d: torch.multinomial(_x(d, 3), 5),
    "fft": lambda d: torch.fft.fft(_x(d), n=0),
    "svd of nothing": lambda d: torch.linalg.svd(torch.empty(0, 3, device=d)),
    "det of no square": lambda d: torch.linalg.det(_x(d)),
    "mm of nothing": lambda d: torch.empty(0, 3, device=d) @ torch.empty(3, 0, device=d),
    "mm over nothing": lambda d: torch.empty(2, 0, device=d) @ torch.empty(0, 3, device=d),
    "max of nothing": lambda d: torch.empty(0, 3, device=d).max(dim=0),
    "max over what is there": lambda d: torch.empty(0, 3, device=d).max(dim=1),
    "mean of nothing": lambda d: torch.empty(0, device=d).mean().isnan(),
    "std of one": lambda d: _x(d, 1).std().isnan(),
    "softmax of nothing": lambda d: torch.empty(0, 3, device=d).softmax(0),
    "batch_norm of nothing": lambda d: functional.batch_norm(
        torch.empty(0, 3, device=d), None, None, training=True
    ),
    "layer_norm of nothing": lambda d: functional.layer_norm(torch.empty(0, 3, device=d), (3,)),
    "conv of nothing": lambda d: functional.conv1d(torch.empty(0, 3, 4, device=d), _x(d, 2, 3, 1)),
    "an LSTM of nothing": lambda d: torch.nn.LSTM(3, 2, device=d)(torch.empty(0, 1, 3, device=d)),
    "attention of nothing": lambda d: functional.scaled_dot_product_attention(
        *[torch.empty(1, 2, 0, 4, device=d)] * 3
    ),
    "cross_entropy of nothing": lambda d: functional.cross_entropy(
        torch.empty(0, 3, device=d), torch.empty(0, dtype=torch.long, device=d)
    ).isnan(),
    "sort of nothing": lambda d: torch.empty(0, device=d).sort(),
    "unique of nothing": lambda d: torch.empty(0, device=d).unique(),
    "nonzero of nothing": lambda d: torch.empty(0, 2, device=d).nonzero(),
    "item of nothing": lambda d: torch.empty(0, device=d).item(),
    "index with nothing": lambda d: _x(d)[torch.empty(0, dtype=torch.long, device=d)],
    "index_put with nothing": lambda d: _x(d).index_put_(
        (torch.empty(0, dtype=torch.long, device=d),), torch.empty(0, 4, device=d)
    ),
    "scatter of nothing": lambda d: _x(d).scatter(
        0, torch.empty(0, 4, dtype=torch.long, device=d), torch.empty(0, 4, device=d)
    ),
    "foreach of nothing": lambda d: torch._foreach_add([torch.empty(0, device=d)], 1.0),
    "foreach of no list": lambda d: torch._foreach_add([], 1.0),
}

STRIDES: dict[str, Callable[[str], Any]] = {
    "empty_strided": lambda d: torch.empty_strided((2, 2), (-1, 1), device=d),
    "empty_strided of too few": lambda d: torch.empty_strided((2, 2), (1,), device=d),
    "empty_strided past 2**63": lambda d: torch.empty_strided((4, 4), (2**61, 1), device=d),
    "empty_strided wraps": lambda d: torch.empty_strided((2**33, 2**31), (2**31, 1), device=d),
    "empty_strided of nothing": lambda d: torch.empty_strided((0, 4), (2**61, 1), device=d).shape,
    "as_strided negative": lambda d: _x(d).as_strided((2,), (-1,)),
    "as_strided negative from the end": lambda d: _x(d).as_strided((2,), (-1,), 5),
    "as_strided too long": lambda d: _x(d).as_strided((13,), (1,)),
    "as_strided by one": lambda d: _x(d).as_strided((12,), (1,), 1),
    "as_strided too wide": lambda d: _x(d).as_strided((2, 2), (11, 2)),
    "as_strided of huge strides": lambda d: _x(d).as_strided((2, 2), (BIG, BIG)),
    "as_strided wraps": lambda d: _x(d).as_strided((2, 5), (BIG, BIG)),
    "as_strided of huge sizes": lambda d: _x(d).as_strided((BIG, 2), (0, 1)).stride(),
    "as_strided offset": lambda d: _x(d).as_strided((1,), (1,), 12),
    "as_strided huge offset": lambda d: _x(d).as_strided((1,), (1,), 2**63 - 1),
    "as_strided negative offset": lambda d: _x(d).as_strided((1,), (1,), -1),
    "as_strided of nothing past the end": lambda d: _x(d).as_strided((0,), (1,), 100),
    "as_strided of too few": lambda d: _x(d).as_strided((2, 2), (1,)),
    "as_strided at the end": lambda d: _x(d).as_strided((1,), (1,), 11),
    "as_strided_ too long": lambda d: _x(d).as_strided_((13,), (1,)),
    "as_strided_copy": lambda d: torch.as_strided_copy(_x(d), (13,), (1,)),
    "as_strided_scatter": lambda d: torch.as_strided_scatter(_x(d), _x(d, 13), (13,), (1,)),
    "set_ with an offset": lambda d: _x(d).set_(_storage(d), -1, (1,), (1,)),
    "set_ with a negative stride": lambda d: _x(d).set_(_storage(d), 0, (2,), (-1,)),
    "set_ with a negative size": lambda d: _x(d).set_(_storage(d), 0, (-2,), (1,)),
    "set_ of huge strides": lambda d: _x(d).set_(_storage(d), 0, (2, 2), (BIG, BIG)),
    "a slice backwards": lambda d: _x(d)[::-1],
    "a step of nothing": lambda d: _x(d)[::0],
    "permute": lambda d: _x(d).permute(0),
    "transpose": lambda d: _x(d).transpose(0, 2),
    "view_as_real": lambda d: torch.view_as_real(_x(d)),
    "view_as_complex": lambda d: torch.view_as_complex(_x(d, 3, 3)),
    "view of another dtype": lambda d: _x(d, 3).view(torch.float64),
    "numpy's negative strides": lambda d: torch.from_numpy(_x("cpu").numpy()[::-1]).to(d),
    "an in-place write over itself": lambda d: _x(d, 1).expand(3).add_(1),
    "out= over itself": lambda d: torch.add(_x(d, 3), 1, out=_x(d, 1).expand(3)),
    "copy_ over itself": lambda d: (y := _x(d, 5))[1:].copy_(y[:-1]) is None,
    "an out= that overlaps": lambda d: torch.cumsum((y := _x(d, 6))[:4], 0, out=y[1:5]),
}

DTYPES: dict[str, Callable[[str], Any]] = {
    "of a factory": lambda d: torch.ones(2, dtype=float, device=d).dtype,  # type: ignore[call-overload]
    "no dtype": lambda d: torch.ones(2, dtype="float32", device=d),  # type: ignore[call-overload]
    "to": lambda d: _x(d).to("float32"),
    "an int as a factor": lambda d: torch.ones(2, dtype=torch.int32, device=d).mul_(1.5),
    "a complex in a float": lambda d: _x(d).add_(1j),
    "bool minus": lambda d: -torch.ones(2, dtype=torch.bool, device=d),
    "mean of ints": lambda d: torch.ones(2, dtype=torch.int64, device=d).mean(),
    "gradient of ints": lambda d: torch.ones(2, dtype=torch.int64, device=d).requires_grad_(),
    "an index of floats": lambda d: _x(d)[torch.ones(2, device=d)],
    "a mask of uint8": lambda d: torch.where(
        torch.ones(2, dtype=torch.float32, device=d), 1.0, 2.0
    ),
    "a shift of floats": lambda d: _x(d) << 1,
    "and of floats": lambda d: _x(d) & _x(d),
    "mm of mixed": lambda d: _x(d) @ _x(d, 4, 2).half(),
    "mm of bool": lambda d: _x(d).bool() @ _x(d, 4, 2).bool(),
    "sort of complex": lambda d: _x(d).to(torch.complex64).sort(),
    "float8 plus": lambda d: _x(d).to(torch.float8_e4m3fn) + 1,
    "cholesky of half": lambda d: torch.linalg.cholesky(torch.eye(2, device=d).half()),
    "uint16 plus": lambda d: torch.ones(2, dtype=torch.uint16, device=d).sort(),
    "cross_entropy of ints": lambda d: functional.cross_entropy(
        _x(d), torch.ones(3, dtype=torch.int32, device=d)
    ),
    "embedding of floats": lambda d: functional.embedding(torch.ones(2, device=d), _x(d)),
    "a result of another dtype": lambda d: torch.sum(
        _x(d), out=torch.empty((), dtype=torch.int64, device=d)
    ),
    "nan to int": lambda d: torch.full((2,), float("nan"), device=d).isnan().to(torch.int32),
    "a number too large": lambda d: torch.full((2,), 2**70, dtype=torch.int64, device=d),
    "a number too large for uint8": lambda d: torch.tensor([300], dtype=torch.uint8, device=d),
    "autocast's dtype": lambda d: torch.autocast(d, dtype=torch.int32)(torch.sin)(_x(d)),
}

GENERATORS: dict[str, Callable[[str], Any]] = {
    "a state of floats": lambda d: torch.Generator(d).set_state(torch.ones(16)),
    "a short state": lambda d: torch.Generator(d).set_state(torch.zeros(3, dtype=torch.uint8)),
    "an empty state": lambda d: torch.Generator(d).set_state(torch.zeros(0, dtype=torch.uint8)),
    "no state": lambda d: torch.Generator(d).set_state([1, 2]),  # type: ignore[arg-type]
    "a seed too large": lambda d: torch.Generator(d).manual_seed(2**65),
    "a seed of no int": lambda d: torch.Generator(d).manual_seed(1.5),  # type: ignore[arg-type]
    "a negative seed": lambda d: torch.Generator(d).manual_seed(-1).initial_seed(),
    "no generator": lambda d: torch.rand(2, device=d, generator=5),  # type: ignore[call-overload]
}


# Where PyTorch itself has other words for devices that are not the CPU.
OTHER_WORDS = {
    "sizes: resize_": "Storage size calculation overflowed",
    "sizes: storage resize_": r"storage size \(-1\)",
    "sizes: one_hot": "index 5 is out of bounds",
}


def _plain(text: str) -> str:
    text = text.partition("\nException raised from")[0]
    return re.sub(r"\bflagos(:0)?\b", "cpu", text)


def _outcome(call: Callable[[str], Any], device: str) -> tuple[str, Any]:
    torch.manual_seed(0)
    try:
        result = call(device)
    except Exception as error:
        return type(error).__name__, _plain(str(error))
    return "fine", result


def _assert_alike(mine: Any, its: Any) -> None:
    if isinstance(its, torch.Tensor):
        assert mine.device.type == D
        torch.testing.assert_close(mine.cpu(), its, rtol=0, atol=0, equal_nan=True)
        assert mine.stride() == its.stride()
    elif isinstance(its, (list, tuple)):
        assert type(mine) is type(its)
        assert len(mine) == len(its)
        for pair in zip(mine, its, strict=True):
            _assert_alike(*pair)
    else:
        assert mine == its


KINDS = {"sizes": SIZES, "strides": STRIDES, "dtypes": DTYPES, "generators": GENERATORS}
ALL = {f"{kind}: {name}": call for kind, calls in KINDS.items() for name, call in calls.items()}


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's, about the arguments
@pytest.mark.parametrize("name", ALL)
def test_flagos_says_and_does_what_the_cpu_does(name: str) -> None:
    its, mine = _outcome(ALL[name], "cpu"), _outcome(ALL[name], D)
    assert mine[0] == its[0], (mine, its)
    if its[0] == "fine":
        _assert_alike(mine[1], its[1])
    elif name in OTHER_WORDS:
        assert re.search(OTHER_WORDS[name], mine[1])
    else:
        assert mine[1] == its[1]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_memory_comes_back_and_the_device_works() -> None:
    level = settled()
    for call in ALL.values():
        _outcome(call, D)
    wait_for_level(level, "after calls that cannot be")
    assert (_x(D) @ _x(D, 4, 2)).sum().item() == (_x("cpu") @ _x("cpu", 4, 2)).sum().item()
