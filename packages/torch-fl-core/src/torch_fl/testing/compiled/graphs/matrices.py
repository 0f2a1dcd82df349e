"""Owns: matrix products and what is fused behind them."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from ..program import Place, Program, graph


@graph("matrices/epilogue")
def _(at: Place) -> Program:
    def epilogue(x: Any, w: Any, b: Any) -> Any:
        return functional.gelu(x @ w + b) * 2, torch.addmm(b, x, w, beta=0.5).relu()

    given = (at.normal(9, 16, grad=True), at.normal(16, 20, grad=True), at.normal(20, grad=True))
    return Program(epilogue, [given], gradients=True)


@graph("matrices/batched", slow=True)
def _(at: Place) -> Program:
    def batched(x: Any, y: Any) -> Any:
        return torch.bmm(x, y).softmax(-1) @ y.transpose(1, 2), torch.einsum("bij,bjk->ik", x, y)

    return Program(
        batched, [(at.normal(3, 5, 8, grad=True), at.normal(3, 8, 6, grad=True))], gradients=True
    )


@graph("matrices/linear-bfloat16")
def _(at: Place) -> Program:
    kind = torch.bfloat16
    given = (at.normal(6, 32, dtype=kind), at.normal(24, 32, dtype=kind), at.normal(24, dtype=kind))
    return Program(
        lambda x, w, b: functional.silu(functional.linear(x, w, b)) + 1, [given], tolerance=2e-2
    )


@graph("matrices/vectors")
def _(at: Place) -> Program:
    def vectors(m: Any, v: Any) -> Any:
        return (
            m @ v + 1,
            torch.dot(v, v),
            torch.outer(v, v).sum(0),
            torch.baddbmm(m[:, None], m[:, None, :1], m[:, None]),
        )

    return Program(vectors, [(at.normal(7, 12), at.normal(12))])


@graph("matrices/transposed")
def _(at: Place) -> Program:
    def transposed(x: Any, y: Any) -> Any:
        return (x.t() @ y).t().contiguous() + 1, (y.t() @ x)[::2]

    return Program(transposed, [(at.normal(11, 6), at.normal(11, 9))])


@graph("matrices/integers")
def _(at: Place) -> Program:
    # Of 8 bits, in sizes that GPUs take: they multiply no matrices of wider integers.
    x, y = (at.integers(*shape, low=-9, dtype=torch.int8) for shape in ((32, 16), (16, 8)))
    return Program(lambda x, y: torch._int_mm(x, y) % 5 + 1, [(x, y)])


@graph("matrices/padded-sizes", slow=True)
def _(at: Place) -> Program:
    # Sizes that a compiler would rather pad.
    given = (at.normal(67, 127, grad=True), at.normal(127, 255, grad=True))
    return Program(lambda x, y: (x @ y).tanh(), [given], gradients=True, tolerance=1e-4)


@graph("matrices/linear-algebra")
def _(at: Place) -> Program:
    def algebra(x: Any) -> Any:
        spd = x @ x.t() + 4 * torch.eye(x.shape[0], device=x.device)
        return torch.linalg.cholesky(spd), torch.linalg.solve(spd, x), spd.logdet()

    return Program(algebra, [(at.normal(5, 5),)], tolerance=1e-4)
