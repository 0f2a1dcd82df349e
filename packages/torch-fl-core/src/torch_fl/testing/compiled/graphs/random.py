"""Owns: random numbers, those that the compiler draws itself and those of the eager kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from ..program import Place, Program, before, graph

EAGER = {"fallback_random": True}
UNORDERED = before("2.13", "random operators of one graph that stay eager may run in another order")


def _draws(x: Any) -> Any:
    return (
        torch.rand(5, 7, device=x.device),
        torch.randn_like(x) + x,
        torch.randint(0, 9, (11,), device=x.device),
        torch.rand(3, device=x.device, dtype=torch.bfloat16),
    )


def _distributions(x: Any) -> Any:
    return (
        torch.bernoulli(x.sigmoid()),
        torch.empty_like(x).uniform_(-1, 2),
        torch.empty_like(x).normal_(1.0, 0.1),
        torch.empty_like(x).exponential_(),
        torch.randperm(9, device=x.device),
        x.softmax(-1).multinomial(2),
    )


def _dropout(x: Any) -> Any:
    return functional.dropout(x, 0.4).sin() + functional.dropout(x * 2, 0.1)


@graph("random/draws")
def _(at: Place) -> Program:
    return Program(_draws, [(at.normal(4, 6),)] * 2, random=True)


@graph("random/draws-eager", limit=UNORDERED)
def _(at: Place) -> Program:
    return Program(_draws, [(at.normal(4, 6),)] * 2, options=EAGER)


@graph("random/distributions")
def _(at: Place) -> Program:
    return Program(_distributions, [(at.normal(4, 6),)], random=True)


@graph("random/distributions-eager", limit=UNORDERED)
def _(at: Place) -> Program:
    return Program(_distributions, [(at.normal(4, 6),)] * 2, options=EAGER)


@graph("random/draws-eager-apart")
def _(at: Place) -> Program:
    def apart(x: Any) -> Any:
        first = torch.rand(5, 7, device=x.device) + 1
        torch._dynamo.graph_break()
        second = torch.randn_like(x) + x
        torch._dynamo.graph_break()
        third = torch.randint(0, 9, (11,), device=x.device) * 2
        torch._dynamo.graph_break()
        return first, second, third, torch.bernoulli(x.sigmoid())

    return Program(apart, [(at.normal(4, 6),)] * 2, options=EAGER)


@graph("random/dropout")
def _(at: Place) -> Program:
    return Program(_dropout, [(at.normal(8, 9, grad=True),)], gradients=True, random=True)


@graph("random/dropout-eager")
def _(at: Place) -> Program:
    return Program(_dropout, [(at.normal(8, 9, grad=True),)], gradients=True, options=EAGER)


@graph("random/dropout-mask")
def _(at: Place) -> Program:
    # What the backward pass lets through is what the forward pass kept: the same numbers.
    def mask(x: Any) -> Any:
        return functional.dropout(x, 0.5)

    given = torch.ones(64, device=at.device).requires_grad_()
    return Program(mask, [(given,)], gradients=True, random=True)


@graph("random/checkpoint")
def _(at: Place) -> Program:
    def block(x: Any) -> Any:
        return functional.dropout(x.sin(), 0.5) * x

    def again(x: Any) -> Any:
        return checkpoint(block, x, use_reentrant=False)

    return Program(again, [(at.normal(8, 8, grad=True),)], gradients=True, random=True)


@graph("random/checkpoint-eager")
def _(at: Place) -> Program:
    def block(x: Any) -> Any:
        return functional.dropout(x.sin(), 0.5) * x

    def again(x: Any) -> Any:
        return checkpoint(block, x, use_reentrant=False) + torch.rand_like(x)

    given = (at.normal(8, 8, grad=True),)
    return Program(again, [given], gradients=True, options=EAGER)


@graph("random/generator")
def _(at: Place) -> Program:
    # A generator among the arguments; PyTorch traces no function with one in 2.11.
    generator = torch.Generator(device=at.device)

    def drawn(x: Any) -> Any:
        generator.manual_seed(5)
        return x + torch.rand(x.shape, generator=generator, device=x.device)

    return Program(drawn, [(at.normal(6),)])


@graph("random/seeded-inside")
def _(at: Place) -> Program:
    def seeded(x: Any) -> Any:
        torch.manual_seed(3)
        return x + torch.rand_like(x)

    return Program(seeded, [(at.normal(6),)], options=EAGER)
