"""Owns: gathering, scattering and masks."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from ..program import Place, Program, graph


@graph("indexing/gather")
def _(at: Place) -> Program:
    def gather(x: Any, i: Any) -> Any:
        return x.gather(1, i), x[i[0]], x.index_select(0, i[1]), x[:, i[2], None], x.take(i)

    given = (at.normal(9, 9, grad=True), at.integers(4, 5, high=9))
    return Program(gather, [given], gradients=True)


@graph("indexing/scatter")
def _(at: Place) -> Program:
    def scatter(x: Any, i: Any, s: Any) -> Any:
        return (
            torch.zeros_like(x).scatter_add(0, i, s),
            x.scatter(1, i[:, :1], 2.0),
            x.scatter_reduce(0, i, s, "amax"),
            x.index_add(0, i[:, 0], s),
        )

    given = (at.normal(6, 7, grad=True), at.integers(6, 7, high=6), at.normal(6, 7, grad=True))
    return Program(scatter, [given], gradients=True)


@graph("indexing/put")
def _(at: Place) -> Program:
    def put(x: Any, i: Any, v: Any) -> Any:
        x = x.clone()
        x[i] = v
        x.index_put_((i,), v, accumulate=True)
        x[1:3, ::2] = 7
        return x, x.index_copy(0, i[:1], v[:1])

    first = torch.tensor([4, 1, 5], device=at.device)
    return Program(put, [(at.normal(6, 8), first, at.normal(3, 8))])


@graph("indexing/masks")
def _(at: Place) -> Program:
    def masks(x: Any, m: Any) -> Any:
        return x.masked_fill(m, 3.0), torch.where(m, x, 0.0), x.tril() + x.triu(1), x * m

    return Program(masks, [(at.normal(7, 7, grad=True), at.bools(7, 7))], gradients=True)


@graph("indexing/joining")
def _(at: Place) -> Program:
    def joining(x: Any, y: Any) -> Any:
        a, b = torch.cat([x, y], 1).chunk(2, 1)
        return torch.stack([a, b]).flip(0), x.roll(1, 0), x.repeat(2, 1), functional.pad(y, (1, 2))

    return Program(
        joining, [(at.normal(4, 6, grad=True), at.normal(4, 6, grad=True))], gradients=True
    )


@graph("indexing/lookup")
def _(at: Place) -> Program:
    def lookup(x: Any, i: Any) -> Any:
        edges = torch.tensor([-1.0, 0.0, 1.0], device=x.device)
        return (
            torch.bucketize(x, edges),
            functional.one_hot(i, 10),
            torch.searchsorted(x.sort().values, x),
        )

    return Program(lookup, [(at.normal(20), at.integers(6))])


@graph("indexing/unknown-size")
def _(at: Place) -> Program:
    # The number of results is known when it has run: a graph break on every device.
    def nonzero(x: Any) -> Any:
        found = torch.nonzero(x > 0)
        return found + 1, x[x > 0.5] * 2

    return Program(nonzero, [(at.normal(5, 6),)])


@graph("indexing/item")
def _(at: Place) -> Program:
    def item(x: Any) -> Any:
        return x * x.max().item() + 1

    return Program(item, [(at.normal(12),)])
