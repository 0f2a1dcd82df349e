"""Owns: pieces of work of linear algebra, transforms, sparse and nested tensors, and of
deterministic mode."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from workloads_of_kernels import (
    Operator,
    Step,
    deterministic,
    list_operator,
    of_operator,
    random,
    with_backward,
    work,
)
from workloads_of_operators import embedding

bf16 = torch.bfloat16


# -- linear algebra and transforms


def _linalg(device: str, operator: Callable[[torch.Tensor], Any]) -> Step:
    a = torch.randn(24, 24)
    x = (a @ a.T + 24 * torch.eye(24)).to(device).requires_grad_()

    def run() -> torch.Tensor:
        result = operator(x)
        return result if isinstance(result, torch.Tensor) else result[1]

    return with_backward(run, x)


for _name, _operator in {
    "cholesky": torch.linalg.cholesky,
    "qr": torch.linalg.qr,
    "svd": torch.linalg.svd,
    "svdvals": torch.linalg.svdvals,
    "eigh": torch.linalg.eigh,
    "solve": lambda x: torch.linalg.solve(x, x.detach()[:, :3]),
    "inv": torch.linalg.inv,
    "det": torch.linalg.det,
    "lu_factor": lambda x: torch.linalg.lu_factor(x)[0],
    "lstsq": lambda x: torch.linalg.lstsq(x, x.detach()[:, :3]).solution,
    "matrix_exp": lambda x: torch.linalg.matrix_exp(x / 100),
    "batched inv": lambda x: torch.linalg.inv(x.expand(5, 24, 24)),
    "batched cholesky": lambda x: torch.linalg.cholesky(x.expand(5, 24, 24)),
}.items():
    work(f"linalg {_name}")(partial(_linalg, operator=_operator))

list_operator("rfft", lambda x: torch.view_as_real(torch.fft.rfft(x)), (8, 60))
list_operator("fft2", lambda x: torch.view_as_real(torch.fft.fft2(x)), (4, 16, 16))
list_operator("irfft", lambda x: torch.fft.irfft(torch.fft.rfft(x)), (8, 60))


# -- sparse and nested tensors, FlexAttention


@work("sparse.mm of COO")
def _coo(device: str) -> Step:
    s = torch.randn(40, 50).relu().to_sparse().to(device).coalesce().requires_grad_()
    dense = random(device, 50, 16)
    return lambda: torch.autograd.grad(torch.sparse.mm(s, dense).sum(), [s, dense])


@work("product of CSR")
def _csr(device: str) -> Step:
    s = torch.randn(40, 50).relu().to_sparse_csr().to(device)
    dense = random(device, 50, 16)
    return with_backward(lambda: s @ dense, dense)


@work("attention over jagged sequences")
def _jagged(device: str) -> Step:
    sequences = [torch.randn(n, 128).to(device, bf16) for n in (40, 17, 64)]
    x = torch.nested.nested_tensor(sequences, layout=torch.jagged)
    into = nn.Linear(128, 384).to(device, bf16)

    def run() -> torch.Tensor:
        q, k, v = (y.unflatten(-1, [4, 32]).transpose(1, 2) for y in into(x).chunk(3, dim=-1))
        return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).values()

    return with_backward(run, *into.parameters())


@work("flex_attention")
def _flex(device: str) -> Step:
    from torch.nn.attention.flex_attention import flex_attention

    q, k, v = (random(device, 1, 2, 128, 32) for _ in "qkv")
    return with_backward(lambda: flex_attention(q, k, v), q, k, v)


# -- deterministic mode


def _rows(operator: Callable[..., Any]) -> Callable[[str], Step]:
    """Work with a table, rows of it that repeat, and values for those rows."""

    def build(device: str) -> Step:
        table, values = random(device, 30, 8, grad=False), random(device, 64, 8, grad=False)
        rows = torch.randint(30, (64,)).to(device)
        return deterministic()(lambda: operator(table, rows, values))

    return build


def _deterministic(operator: Operator, *shapes: tuple[int, ...], **options: Any) -> Any:
    return lambda device: deterministic()(of_operator(device, operator, *shapes, **options))


work("deterministic index_put")(_rows(lambda t, i, v: t.index_put((i,), v, accumulate=True)))
work("deterministic index_add")(_rows(lambda t, i, v: t.index_add(0, i, v)))
work("deterministic scatter")(_rows(lambda t, i, v: t[:, 0].scatter(0, i, v[:, 0])))
work("deterministic scatter_add")(_rows(lambda t, i, v: t[:, 0].scatter_add(0, i, v[:, 0])))
work("deterministic empty")(_rows(lambda t, i, v: (torch.empty_like(t), t.new_empty(40))))
work("deterministic embedding")(lambda device: deterministic()(embedding(device)))
work("deterministic cumsum")(_rows(lambda t, i, v: t.cumsum(0)))
work("deterministic mm")(_deterministic(torch.mm, (256, 128), (128, 192)))
work("deterministic interpolate")(
    _deterministic(functional.interpolate, (2, 3, 8, 8), scale_factor=2, mode="bilinear")
)
work("deterministic pad")(
    _deterministic(functional.pad, (2, 3, 8, 8), pad=(1, 1, 1, 1), mode="replicate")
)
work("deterministic adaptive_avg_pool2d", refused=True)(
    _deterministic(functional.adaptive_avg_pool2d, (2, 3, 8, 8), output_size=3)
)
work("deterministic median", refused=True)(_rows(lambda t, i, v: t.median(0)))
