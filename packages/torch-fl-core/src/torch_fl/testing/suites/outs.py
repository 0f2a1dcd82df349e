"""Owns: calls with ``out=``: in every way that must work, and in ways that must alert."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import torch

from ..harness import tree
from ..harness.cases import Case, Judged
from ..harness.movers import CPU, Arguments, Mover
from .samples import samples_of

Make = Callable[[torch.Tensor], torch.Tensor]


def _empty(result: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=result.dtype)


def _sized(result: torch.Tensor) -> torch.Tensor:
    # Filled, so that a value which is never written shows.
    return torch.full(result.shape, 1, dtype=result.dtype)


def _strided(result: torch.Tensor) -> torch.Tensor:
    # Matrices transposed where they lie. Not all dimensions reversed: stock CPU's tril, triu and
    # lu_unpack write past the end of such a result if it has two batch dimensions.
    if result.dim() >= 2:
        return torch.full(result.mT.shape, 1, dtype=result.dtype).mT
    return torch.full((*result.shape, 2), 1, dtype=result.dtype)[..., 0]


def _too_large(result: torch.Tensor) -> torch.Tensor:
    return torch.full((*result.shape, 2), 1, dtype=result.dtype)


def _wrong_dtype(result: torch.Tensor) -> torch.Tensor:
    # What the result cannot be cast to, or, for an integer result, what it can.
    dtype = torch.int64 if result.dtype.is_floating_point or result.is_complex() else torch.float32
    return torch.full(result.shape, 1, dtype=dtype)


def _requires_grad(result: torch.Tensor) -> torch.Tensor:
    differentiable = result.dtype.is_floating_point or result.is_complex()
    return torch.full(result.shape, 1, dtype=result.dtype).requires_grad_(differentiable)


_RIGHT: Final[Mapping[str, Make]] = {"empty": _empty, "sized": _sized, "strided": _strided}
_WRONG: Final[Mapping[str, Make]] = {
    "too large": _too_large,
    "of another dtype": _wrong_dtype,
    "requires grad": _requires_grad,
}


def _cases(op: Any, dtype: torch.dtype, outs: Mapping[str, Make], judged: Judged) -> Iterator[Case]:
    if not op.supports_out:
        return
    for index, sample in samples_of(op, dtype, requires_grad=False):
        arguments = Arguments.of_sample(op.full_name, sample)
        reference = Mover(CPU, op.full_name).arguments(arguments)
        try:
            result = op.op(*reference.positional, **reference.keyword)
        except Exception:  # whatever stock CPU rejects is no sample
            continue
        results = tree.tensors(result)
        if not results or any(tensor.layout != torch.strided for tensor in results):
            continue
        single = isinstance(result, torch.Tensor)
        for kind, make in outs.items():
            made = [make(tensor) for tensor in results]
            out = made[0] if single else tuple(made)
            label = f"{dtype} sample {index} {kind}"
            yield Case(label, op.op, arguments.with_keyword(out=out), judged)


def right(op: Any, dtype: torch.dtype) -> Iterator[Case]:
    """``out=`` from ``empty(0)``, of the right size, and of the right size but not contiguous."""
    return _cases(op, dtype, _RIGHT, "result")


def alerting(op: Any, dtype: torch.dtype) -> Iterator[Case]:
    """``out=`` too large (a warning), of another dtype, and one that requires a gradient."""
    return _cases(op, dtype, _WRONG, "alerts")
