"""Owns: the cases that are made of an OpInfo's samples: forward, in place, with gaps, with errors.

Gradients are in ``gradients``, ``out=`` in ``outs``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from ..harness.cases import Case
from ..harness.movers import Arguments
from .gradients import WithGradients
from .samples import samples_of, seeded


def forward(op: Any, dtype: torch.dtype) -> Iterator[Case]:
    """Each sample."""
    for index, sample in samples_of(op, dtype, requires_grad=False):
        yield Case(f"{dtype} sample {index}", op.op, Arguments.of_sample(op.full_name, sample))


def noncontiguous(op: Any, dtype: torch.dtype) -> Iterator[Case]:
    """Forward, and gradients where there are any, as PyTorch's own test does it."""
    differentiable = dtype in op.supported_backward_dtypes("cpu")
    for index, sample in samples_of(op, dtype, requires_grad=differentiable):
        originals = Arguments.of_sample(op.full_name, sample).tensors()
        if any(tensor.layout != torch.strided for tensor in originals):
            continue  # "non-contiguous" means nothing there
        arguments = Arguments.of_sample(op.full_name, sample.noncontiguous())
        yield Case(f"{dtype} sample {index}", op.op, arguments)
        if differentiable:
            process = sample.output_process_fn_grad
            yield Case(f"{dtype} sample {index} grad", WithGradients(op.op, process), arguments)


def inplace(op: Any, dtype: torch.dtype) -> Iterator[Case]:
    """The in-place variant, where there is one."""
    if op.inplace_variant is None:
        return
    for index, sample in samples_of(op, dtype, requires_grad=False):
        if not sample.broadcasts_input:  # an in-place operator cannot enlarge its input
            arguments = Arguments.of_sample(op.full_name, sample)
            yield Case(f"{dtype} sample {index}", op.inplace_variant, arguments)


def errors(make: Callable[[Any], Iterable[Any]]) -> Callable[[Any, torch.dtype], Iterator[Case]]:
    """Cases of ErrorInputs, which ``make(op)`` gives; their dtypes are their own."""

    def cases(op: Any, dtype: torch.dtype) -> Iterator[Case]:
        for index, given in seeded(lambda: make(op)):
            arguments = Arguments.of_sample(op.full_name, given.sample_input)
            label = f"error input {index}"
            yield Case(label, op.op, arguments, "error", given.error_regex)

    return cases
