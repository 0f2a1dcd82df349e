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


def test_gradients_of_blocks_that_share_them_accumulate_as_on_the_cpu() -> None:
    """A sum gives both summands the gradient that it gets: one tensor, which neither may keep."""
    for device in ("cpu", FLAGOS):
        a, b = (torch.nn.Parameter(torch.zeros(3, device=device)) for _ in range(2))
        first, second = compiled(lambda a=a: a + 0), compiled(lambda b=b: b + 0)
        for _ in range(3):
            (first() + second()).sum().backward()
        assert a.grad is not None
        assert b.grad is not None
        assert a.grad.tolist() == b.grad.tolist() == [3, 3, 3]
        b.grad.zero_()
        assert a.grad.tolist() == [3, 3, 3]


def test_what_is_given_to_backward_stays_the_callers() -> None:
    x = torch.ones(2, device=FLAGOS, requires_grad=True)
    gradient = torch.ones(2, device=FLAGOS)
    run = compiled(lambda x: x + 1)
    for _ in range(4):
        run(x).backward(gradient)
    assert gradient.tolist() == [1, 1]
    same(x.grad, torch.full((2,), 4.0))


def test_parameters_may_be_replaced_by_their_data() -> None:
    """An optimizer written by hand, in a compiled step."""
    losses: dict[str, list[float]] = {"cpu": [], FLAGOS: []}
    for device, found in losses.items():
        w = torch.nn.Parameter(torch.full((2,), 2.0, device=device))

        def step(w: torch.nn.Parameter = w) -> torch.Tensor:
            assert w.grad is not None
            w.data = w.data - 0.1 * w.grad
            return w.detach().square().sum()

        run = compiled(step)
        for _ in range(3):
            w.grad = 2 * w.detach()
            found.append(round(run().item(), 4))
    assert losses[FLAGOS] == losses["cpu"]
    assert losses["cpu"][0] > losses["cpu"][1] > losses["cpu"][2]
