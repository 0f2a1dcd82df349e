"""Owns: a model, its training compared with stock CPU's, and results compared, for the tests."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

FLAGOS = "flagos"


def compiled(function: Callable[..., Any], **settings: Any) -> Any:
    return torch.compile(function, backend="flagos", **settings)


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = (torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    return torch.nn.Sequential(*layers)


def same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert ours.device.type == FLAGOS
    torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-5)


def trains_alike(run: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]) -> None:
    """`run` on flagos has the loss and gradients of the same model, not compiled, on the CPU."""
    reference, inputs = model(), torch.randn(3, 8)
    ours = copy.deepcopy(reference).to(FLAGOS)
    want = reference(inputs).sin().sum()
    want.backward()
    loss = run(ours, inputs.to(FLAGOS))
    if loss.requires_grad:
        loss.backward()
    same(loss.detach(), want.detach())
    for mine, other in zip(ours.parameters(), reference.parameters(), strict=True):
        assert mine.grad is not None
        same(mine.grad, other.grad)
