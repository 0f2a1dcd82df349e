"""Owns: element by element: chains, types, conditions."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from ..program import Place, Program, graph


@graph("pointwise/chain")
def _(at: Place) -> Program:
    def chain(x: Any, y: Any) -> Any:
        return torch.sin(x) * y.exp() + torch.sqrt(x.abs() + 1), (x - y).tanh() / 3

    return Program(chain, [(at.normal(5, 67, grad=True), at.normal(67, grad=True))], gradients=True)


@graph("pointwise/activations")
def _(at: Place) -> Program:
    def activations(x: Any) -> Any:
        return (
            functional.gelu(x)
            + functional.silu(x)
            + functional.leaky_relu(x)
            + functional.softplus(x)
            + functional.hardswish(x)
            + functional.elu(x)
        )

    return Program(activations, [(at.normal(4, 33, grad=True),)], gradients=True)


@graph("pointwise/conditions")
def _(at: Place) -> Program:
    def conditions(x: Any, y: Any) -> Any:
        z = torch.where(x > y, x.clamp(-1, 0.5), y * 2)
        return torch.minimum(z, x), (x == y).logical_or(x > 0), x.isnan() | ~(y < 1)

    return Program(conditions, [(at.normal(3, 50), at.normal(3, 50))])


@graph("pointwise/integers")
def _(at: Place) -> Program:
    def integers(x: Any, y: Any) -> Any:
        return (
            torch.div(x, y, rounding_mode="floor"),
            x % y,
            (x & 7) ^ (y << 1),
            (x > 3).to(torch.int32) + x.to(torch.uint8),
            x / y,
        )

    return Program(integers, [(at.integers(70, low=-9), at.integers(70, low=1))])


@graph("pointwise/bfloat16")
def _(at: Place) -> Program:
    def half(x: Any, y: Any) -> Any:
        return (x * y).sigmoid() + x, (x.float() @ y.float().t()).to(x.dtype)

    kind = torch.bfloat16
    given = (at.normal(4, 32, dtype=kind, grad=True), at.normal(4, 32, dtype=kind, grad=True))
    return Program(half, [given], gradients=True, tolerance=2e-2)


@graph("pointwise/float16")
def _(at: Place) -> Program:
    def half(x: Any) -> Any:
        return functional.gelu(x * 2), x.pow(2).mean(-1)

    return Program(half, [(at.normal(4, 40, dtype=torch.float16),)], tolerance=4e-3)


@graph("pointwise/float64")
def _(at: Place) -> Program:
    def double(x: Any, y: Any) -> Any:
        return torch.atan2(x, y) + torch.erf(x), x + y.float()

    kind = torch.float64
    given = (at.normal(9, 9, dtype=kind, grad=True), at.normal(9, 9, dtype=kind, grad=True))
    return Program(double, [given], gradients=True)


@graph("pointwise/complex")
def _(at: Place) -> Program:
    def complex_numbers(x: Any, y: Any) -> Any:
        z = x * y + x.conj()
        return z, z.abs(), torch.view_as_real(y).sum(-1), x.real - y.imag

    kind = torch.complex64
    return Program(complex_numbers, [(at.normal(6, 7, dtype=kind), at.normal(6, 7, dtype=kind))])


@graph("pointwise/promotion")
def _(at: Place) -> Program:
    def promotion(x: Any, i: Any, b: Any, s: Any) -> Any:
        return x + i, i * b, b + 1.5, s + x, i / 2

    given = (at.normal(31), at.integers(31), at.bools(31), at.normal(1, dtype=torch.float64)[0])
    return Program(promotion, [given])


@graph("pointwise/zero-dimensional")
def _(at: Place) -> Program:
    def scalars(x: Any, outside: Any) -> Any:
        return x * outside + 1, x.sin(), torch.add(x, x, alpha=2)

    # A number on the CPU may take part in what another device computes.
    return Program(scalars, [(at.normal(1)[0], torch.tensor(2.5))])
