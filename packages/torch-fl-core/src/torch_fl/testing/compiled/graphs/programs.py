"""Owns: what a function may be: modes, transforms, higher-order operators, kinds of results."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..program import Place, Program, eagerly, graph


@graph("programs/no-grad")
def _(at: Place) -> Program:
    def function(x: Any) -> Any:
        with torch.no_grad():
            y = x * 2
        return y, x.sin()

    return Program(function, [(at.normal(5, grad=True),)], gradients=True)


@graph("programs/inference-mode")
def _(at: Place) -> Program:
    def function(x: Any) -> Any:
        with torch.inference_mode():
            y = x * 2
            return y.view(-1), y + 1

    return Program(function, [(at.normal(2, 3),)])


@graph("programs/func-grad")
def _(at: Place) -> Program:
    def function(x: Any, y: Any) -> Any:
        return torch.func.grad(lambda v: (v.sin() * y).sum())(x), torch.func.vjp(torch.cos, x)[0]

    return Program(function, [(at.normal(5), at.normal(5))])


@graph("programs/vmap")
def _(at: Place) -> Program:
    def function(x: Any, w: Any) -> Any:
        each = torch.func.vmap(lambda v: (v @ w).softmax(-1).sum() + v.sum())(x)
        return each, torch.func.vmap(torch.func.grad(lambda v: (v * v).sum()))(x)

    return Program(function, [(at.normal(4, 5), at.normal(5, 3))], tolerance=1e-4)


@graph("programs/jacobian", slow=True)
def _(at: Place) -> Program:
    return Program(lambda x: torch.func.jacrev(lambda v: v.sin() * v.sum())(x), [(at.normal(4),)])


@graph("programs/gradient-inside")
def _(at: Place) -> Program:
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            return grad * 2 + x * 0

    apply: Any = Scale.apply
    return Program(lambda x: apply(x).sin(), [(at.normal(6, grad=True),)], gradients=True)


@graph("programs/condition")
def _(at: Place) -> Program:
    def function(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda v: v.sin() + 1, lambda v: v.cos() - 1, (x,))

    x = at.normal(6).abs()
    return Program(function, [(x,), (-x,)])


@graph("programs/loop")
def _(at: Place) -> Program:
    from torch._higher_order_ops.while_loop import while_loop

    def function(x: Any) -> Any:
        return while_loop(
            lambda i, v: i < 4,
            lambda i, v: (i + 1, v * 2 + i),
            (torch.zeros((), dtype=torch.int64, device=x.device), x),
        )

    return Program(function, [(at.normal(5),)])


@graph("programs/constants")
def _(at: Place) -> Program:
    constant = at.normal(4)
    table = {"bias": at.normal(4)}

    def function(x: Any) -> Any:
        return x + constant, constant, table["bias"] * 2, torch.tensor([1, 2, 3])

    return Program(function, [(at.normal(4),)])


@graph("programs/buffers")
def _(at: Place) -> Program:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen = nn.Buffer(torch.zeros(()))
            self.mean = nn.Buffer(torch.zeros(4))

        def forward(self, x: Any) -> Any:
            self.seen.add_(1)
            self.mean.lerp_(x.detach().mean(0), 0.5)
            return x - self.mean, self.mean

    model = at.layer(Counter)
    return Program(model, [(at.normal(3, 4),), (at.normal(3, 4),)], [model])


@graph("programs/kinds-of-results")
def _(at: Place) -> Program:
    def function(x: Any) -> Any:
        return {"a": x + 1, "b": [x * 2, None], "c": (3, "text", 2.5)}, x.shape, x.dtype

    return Program(function, [(at.normal(3, 2),)])


@graph("programs/unused-and-none")
def _(at: Place) -> Program:
    def function(x: Any, y: Any, z: Any) -> Any:
        return x * 2, None, (y.sin() if z is None else y)

    given = (at.normal(4, grad=True), at.normal(4, grad=True), None)
    return Program(function, [given], gradients=True)


@graph("programs/graph-break")
def _(at: Place) -> Program:
    def function(x: Any) -> Any:
        y = x.sin() + 1
        torch._dynamo.graph_break()
        return y * 2, y.view(-1)

    return Program(function, [(at.normal(3, 4, grad=True),)], gradients=True)


@graph("programs/nested-compile")
def _(at: Place) -> Program:
    inner = torch.compile(lambda x: x.relu() * 2)
    return Program(lambda x: inner(x + 1).sum(0), [(at.normal(3, 4, grad=True),)], gradients=True)


@graph("programs/hooks", slow=True)
def _(at: Place) -> Program:
    layer = at.layer(lambda: nn.Linear(4, 4))
    layer.register_forward_hook(lambda module, given, made: made * 2)

    def function(x: Any) -> Any:
        y = layer(x)
        y.register_hook(lambda grad: grad * 3)
        return y.tanh()

    return Program(
        function, [(at.normal(2, 4, grad=True),)], [layer], gradients=True, tolerance=1e-4
    )


@graph("programs/numpy")
def _(at: Place) -> Program:
    def function(x: Any) -> Any:
        return torch.from_numpy(x.cpu().numpy() * 2) + 1

    return Program(function, [(at.normal(4),)])


@graph("programs/freezing")
def _(at: Place) -> Program:
    model = at.layer(lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))).eval()

    @eagerly
    def function(x: Any) -> Any:
        with torch.no_grad():
            return compiled(x)

    compiled: Any = torch.compile(model, options={"freezing": True})
    return Program(function, [(at.normal(3, 8),)], tolerance=1e-4)


@graph("programs/cpp-wrapper", slow=True)
def _(at: Place) -> Program:
    def function(x: Any, w: Any) -> Any:
        return (x @ w).relu().sum(0), x.new_ones(3), x.view(-1)

    # Twice: PyTorch 2.11 forgets an option before the backward pass, later releases do not see a
    # setting in the thread of that pass.
    wrapper = {"cpp_wrapper": True}
    return Program(
        function,
        [(at.normal(4, 5, grad=True), at.normal(5, 6, grad=True))],
        gradients=True,
        options=wrapper,
        settings=wrapper,
        tolerance=1e-4,
    )


@graph("programs/max-autotune", slow=True)
def _(at: Place) -> Program:
    given = (at.normal(32, 64, grad=True), at.normal(64, 48, grad=True))
    return Program(
        lambda x, w: (x @ w).relu(),
        [given],
        gradients=True,
        options={"max_autotune": True},
        tolerance=1e-4,
    )
