"""Owns: the passes, which say what calls are made for an operator.

A pass turns an OpInfo and a dtype into cases; a case is one call that can be
made on either side. Which cases count is decided later: those that stock CPU carries out.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy
import torch

from . import tree
from .call import seed_generators
from .movers import CPU, Arguments, Mover

_SAMPLE_SEED: Final = 1234
_DTYPE_PASS: Final = (torch.bfloat16, torch.int64, torch.bool, torch.complex64)
_ALL: Final = (torch.float32, *_DTYPE_PASS, torch.float64)


class NotDifferentiable(Exception):
    """The sample has no differentiable input or result: it is no gradient sample at all."""


@dataclass(frozen=True)
class Case:
    """One call. ``arguments`` are the CPU originals; they are copied, never passed on."""

    label: str
    function: Callable[..., Any]
    arguments: Arguments


Cases = Callable[[Any, torch.dtype], Iterator[Case]]


@dataclass(frozen=True)
class Pass:
    """A named set of calls over some dtypes."""

    name: str
    dtypes: tuple[torch.dtype, ...]
    cases: Cases
    description: str
    any_dtype: bool = False
    """An operator that supports none of ``dtypes`` is run with another that it does support."""

    def dtypes_of(self, op: Any) -> list[torch.dtype]:
        """The dtypes to run for an operator, as stock CPU supports them."""
        supported = op.supported_dtypes("cpu")
        chosen = [dtype for dtype in self.dtypes if dtype in supported]
        if not chosen and self.any_dtype:
            rest = [dtype for dtype in _ALL if dtype in supported]
            chosen = (rest or sorted(supported, key=str))[:1]
        return chosen


class _WithGradients:
    """An operator, then the gradients of its results with respect to its inputs.

    The cotangents are drawn when the reference runs and copied for the device.
    """

    def __init__(self, op: Any, process: Callable[[Any], Any]) -> None:
        self._op = op
        # Removes what is not unique in a result, such as the sign of an eigenvector.
        self._process = process
        self._cotangents: list[torch.Tensor] | None = None

    def __call__(self, *positional: Any, **keyword: Any) -> dict[str, Any]:
        result = self._process(self._op.op(*positional, **keyword))
        results = [tensor for tensor in tree.tensors(result) if tensor.requires_grad]
        inputs = [t for t in tree.tensors((positional, keyword)) if t.requires_grad]
        if not results or not inputs:
            raise NotDifferentiable
        if self._cotangents is None:
            generator = torch.Generator().manual_seed(len(results))
            self._cotangents = [_cotangent(tensor, generator) for tensor in results]
        cotangents = [
            Mover(tensor.device).tensor(cotangent)
            for tensor, cotangent in zip(results, self._cotangents, strict=True)
        ]
        gradients = torch.autograd.grad(results, inputs, cotangents, allow_unused=True)
        return {"result": result, "gradients": list(gradients)}


def _cotangent(result: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if result.layout != torch.strided:  # random values need the result's own sparsity pattern
        return result.detach().clone()
    return torch.randn(result.shape, dtype=result.dtype, generator=generator)


def _samples(op: Any, dtype: torch.dtype, requires_grad: bool) -> Iterator[tuple[int, Any]]:
    """The operator's samples; everything is seeded before each of them.

    As PyTorch's ``OpInfo.sample_inputs`` does it: the calls in between draw numbers too and must
    not change the samples. Not by ``sample_inputs`` itself, which also inspects the stack for the
    test that called it, 50 ms a time, and seeds slowly (see `seed_generators`).
    """
    samples = iter(op.sample_inputs_func(op, "cpu", dtype, requires_grad))
    for index in itertools.count():
        seed_generators(CPU, _SAMPLE_SEED)
        random.seed(_SAMPLE_SEED)
        numpy.random.seed(_SAMPLE_SEED)
        try:
            sample = next(samples)
        except StopIteration:
            return
        yield index, sample


def _forward(op: Any, dtype: torch.dtype) -> Iterator[Case]:
    for index, sample in _samples(op, dtype, requires_grad=False):
        yield Case(f"{dtype} sample {index}", op.op, Arguments.of_sample(op.full_name, sample))


def _grad(op: Any, dtype: torch.dtype) -> Iterator[Case]:
    if dtype not in op.supported_backward_dtypes("cpu"):
        return
    for index, sample in _samples(op, dtype, requires_grad=True):
        yield Case(
            f"{dtype} sample {index}",
            _WithGradients(op, sample.output_process_fn_grad),
            Arguments.of_sample(op.full_name, sample),
        )


def _noncontiguous(op: Any, dtype: torch.dtype) -> Iterator[Case]:
    """Forward, and gradients where there are any, as PyTorch's own test does it."""
    differentiable = dtype in op.supported_backward_dtypes("cpu")
    for index, sample in _samples(op, dtype, requires_grad=differentiable):
        originals = Arguments.of_sample(op.full_name, sample).tensors()
        if any(tensor.layout != torch.strided for tensor in originals):
            continue  # "non-contiguous" means nothing there
        arguments = Arguments.of_sample(op.full_name, sample.noncontiguous())
        yield Case(f"{dtype} sample {index}", op.op, arguments)
        if differentiable:
            process = sample.output_process_fn_grad
            yield Case(f"{dtype} sample {index} grad", _WithGradients(op, process), arguments)


def _inplace(op: Any, dtype: torch.dtype) -> Iterator[Case]:
    if op.inplace_variant is None:
        return
    for index, sample in _samples(op, dtype, requires_grad=False):
        if not sample.broadcasts_input:  # an in-place operator cannot enlarge its input
            arguments = Arguments.of_sample(op.full_name, sample)
            yield Case(f"{dtype} sample {index}", op.inplace_variant, arguments)


def _out(op: Any, dtype: torch.dtype) -> Iterator[Case]:
    """``out=`` from ``empty(0)``, of the right size, and of the right size but not contiguous."""
    if not op.supports_out:
        return
    for index, sample in _samples(op, dtype, requires_grad=False):
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
        for kind, make in _OUTS.items():
            made = [make(tensor) for tensor in results]
            out = made[0] if single else tuple(made)
            yield Case(f"{dtype} sample {index} {kind}", op.op, arguments.with_keyword(out=out))


def _out_empty(result: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=result.dtype)


def _out_sized(result: torch.Tensor) -> torch.Tensor:
    # Filled, so that a value which is never written shows.
    return torch.full(result.shape, 1, dtype=result.dtype)


def _out_strided(result: torch.Tensor) -> torch.Tensor:
    # Matrices transposed where they lie. Not all dimensions reversed: stock CPU's tril, triu and
    # lu_unpack write past the end of such a result if it has two batch dimensions.
    if result.dim() >= 2:
        return torch.full(result.mT.shape, 1, dtype=result.dtype).mT
    return torch.full((*result.shape, 2), 1, dtype=result.dtype)[..., 0]


_OUTS: Final = {"empty": _out_empty, "sized": _out_sized, "strided": _out_strided}

_FLOAT32: Final = (torch.float32,)

PASSES: Final[dict[str, Pass]] = {
    item.name: item
    for item in (
        Pass("forward", _FLOAT32, _forward, "float32, or what the operator has", any_dtype=True),
        Pass("grad", _FLOAT32, _grad, "float32, forward and gradients"),
        Pass("bfloat16", (torch.bfloat16,), _forward, "bfloat16, forward"),
        Pass("int64", (torch.int64,), _forward, "int64, forward"),
        Pass("bool", (torch.bool,), _forward, "bool, forward"),
        Pass("complex64", (torch.complex64,), _forward, "complex64, forward"),
        Pass("grad64", (torch.float64,), _grad, "float64, forward and gradients"),
        Pass("out", _ALL, _out, "out= empty, of the right size, not contiguous"),
        Pass("inplace", _ALL, _inplace, "the in-place variant"),
        Pass(
            "noncontiguous",
            (torch.float32, torch.int64, torch.complex64),
            _noncontiguous,
            "inputs with gaps between their elements, forward and gradients",
        ),
    )
}
"""All passes by name, in the order in which they run."""
