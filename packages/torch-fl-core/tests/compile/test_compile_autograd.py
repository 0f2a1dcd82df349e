"""Owns: tests of backward passes under the compiler: compiled autograd, checkpoints."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from against_cpu import FLAGOS, compiled, same, trains_alike
from torch.nn import functional as F
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

pytestmark = pytest.mark.usefixtures("fresh_compiler")


@pytest.mark.slow
@pytest.mark.parametrize("by_setting", [False, True])
def test_compiled_autograd(by_setting: bool) -> None:
    def run(ours: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        if not by_setting:
            with torch._dynamo.compiled_autograd._enable(torch.compile(backend="flagos")):
                loss = compiled(ours)(x).sin().sum()
                loss.backward()
            return loss.detach()

        def step(x: torch.Tensor) -> torch.Tensor:
            loss = ours(x).sin().sum()
            loss.backward()
            return loss.detach()

        with torch._dynamo.config.patch(compiled_autograd=True):
            return compiled(step)(x)

    trains_alike(run)


@pytest.mark.parametrize("kind", ["reentrant", "not reentrant", "selective"])
def test_activation_checkpointing(kind: str) -> None:
    def policy(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        saved = operator is torch.ops.aten.addmm.default
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    def contexts() -> Any:
        return create_selective_checkpoint_contexts(policy)

    more = {"context_fn": contexts} if kind == "selective" else {}

    def run(ours: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        def loss(x: torch.Tensor) -> torch.Tensor:
            return checkpoint(ours, x, use_reentrant=kind == "reentrant", **more).sin().sum()

        return compiled(loss)(x)

    trains_alike(run)


def test_a_checkpoint_drops_the_same_again() -> None:
    def drop(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.dropout(x @ w, 0.5).sin()

    x = torch.ones(4, 8, device=FLAGOS)
    w = torch.full((8, 8), 0.1, device=FLAGOS, requires_grad=True)
    y = compiled(lambda x, w: checkpoint(drop, x, w, use_reentrant=False))(x, w)
    y.sum().backward()
    kept = (y != 0).cpu().float()
    assert 0 < kept.mean() < 1
    same(w.grad, x.cpu().t() @ (kept * torch.cos(torch.tensor(1.6)) * 2))
