"""Owns: sizes that change from call to call."""

from __future__ import annotations

from typing import Any

import torch

from ..program import Place, Program, graph


@graph("shapes/pointwise")
def _(at: Place) -> Program:
    def function(x: Any) -> Any:
        return x.sin() * x.shape[0] + torch.arange(x.shape[0], device=x.device)

    return Program(function, [(at.normal(n),) for n in (3, 9, 65, 1, 0)], dynamic=True)


@graph("shapes/reduction", slow=True)
def _(at: Place) -> Program:
    def function(x: Any) -> Any:
        return x.softmax(-1).sum(0), x.mean()

    sizes = [(3, 5), (8, 2), (1, 7), (17, 33)]
    return Program(
        function, [(at.normal(*s, grad=True),) for s in sizes], gradients=True, dynamic=True
    )


@graph("shapes/matrices")
def _(at: Place) -> Program:
    def function(x: Any, w: Any) -> Any:
        return (x @ w).relu().view(x.shape[0], 2, 2)

    calls = [(at.normal(n, 6), at.normal(6, 4)) for n in (2, 5, 1, 0)]
    return Program(function, calls, dynamic=True)


@graph("shapes/automatic")
def _(at: Place) -> Program:
    # The second size makes the compiler take the dimension for a variable one.
    def function(x: Any) -> Any:
        return torch.cat([x, x.flip(0)]).cumsum(0)

    return Program(function, [(at.normal(n, 3),) for n in (4, 6, 9)])


@graph("shapes/marked")
def _(at: Place) -> Program:
    def function(x: Any) -> Any:
        return x.reshape(-1, 2).sum(1), x.new_zeros(x.shape[0] * 2)

    calls = []
    for n in (4, 10):
        x = at.normal(n)
        torch._dynamo.mark_dynamic(x, 0)
        calls.append((x,))
    return Program(function, calls)


@graph("shapes/factories")
def _(at: Place) -> Program:
    def function(x: Any, n: int) -> Any:
        return torch.full((n, x.shape[0]), 2.0, device=x.device) + x, torch.zeros(
            n, device=x.device
        )

    return Program(function, [(at.normal(3), 4), (at.normal(5), 7)], dynamic=True)
