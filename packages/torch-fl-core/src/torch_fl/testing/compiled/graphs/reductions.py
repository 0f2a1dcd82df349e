"""Owns: reductions, scans and sorting."""

from __future__ import annotations

from typing import Any

import torch

from ..program import Place, Program, graph


@graph("reductions/sums")
def _(at: Place) -> Program:
    def sums(x: Any) -> Any:
        return x.sum(), x.mean(-1), x.sum((0, 2), keepdim=True), x.var(1), torch.std_mean(x, 0)[0]

    return Program(sums, [(at.normal(4, 5, 37, grad=True),)], gradients=True)


@graph("reductions/softmax")
def _(at: Place) -> Program:
    def softmax(x: Any) -> Any:
        return x.softmax(-1), x.log_softmax(0), x.logsumexp(1)

    return Program(softmax, [(at.normal(9, 35, grad=True),)], gradients=True)


@graph("reductions/extremes")
def _(at: Place) -> Program:
    def extremes(x: Any) -> Any:
        values, places = x.max(-1)
        return values, places, x.argmin(0), x.amax((0, 1)), x.aminmax()

    return Program(extremes, [(at.normal(6, 41),)])


@graph("reductions/integers")
def _(at: Place) -> Program:
    def integers(x: Any, b: Any) -> Any:
        return x.sum(), x.prod(-1), x.max(), b.any(-1), b.all(), b.sum(0), b.float().mean()

    return Program(integers, [(at.integers(5, 6, low=-3, high=4), at.bools(5, 6))])


@graph("reductions/scans")
def _(at: Place) -> Program:
    def scans(x: Any) -> Any:
        return x.cumsum(-1), x.cumprod(0), torch.logcumsumexp(x, 1), x.cummax(0).values

    return Program(scans, [(at.normal(5, 18),)])


@graph("reductions/norms", slow=True)
def _(at: Place) -> Program:
    def norms(x: Any) -> Any:
        return x.norm(), torch.linalg.vector_norm(x, 1, dim=-1), x.norm(dim=0, keepdim=True) + x

    return Program(norms, [(at.normal(7, 19, grad=True),)], gradients=True)


@graph("reductions/sorting")
def _(at: Place) -> Program:
    def sorting(x: Any) -> Any:
        values, places = x.sort(-1, descending=True)
        return values, places, x.topk(3, dim=0), x.median(-1)

    return Program(sorting, [(at.normal(8, 13),)])


@graph("reductions/empty")
def _(at: Place) -> Program:
    def empty(x: Any) -> Any:
        return x.sum(0), x.mean(), x.prod(1), (x + 1).relu()

    return Program(empty, [(at.normal(0, 5),)])
