"""Owns: training: whole models, optimizers, autocast."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from ..program import Place, Program, eagerly, graph


@graph("training/mlp")
def _(at: Place) -> Program:
    model = at.layer(lambda: nn.Sequential(nn.Linear(9, 16), nn.GELU(), nn.Linear(16, 3)))
    calls = [(at.normal(5, 9, grad=True),), (at.normal(5, 9, grad=True),)]
    return Program(model, calls, [model], gradients=True, tolerance=1e-4)


@graph("training/convolution")
def _(at: Place) -> Program:
    def make() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
        )

    model = at.layer(make)
    calls = [(at.normal(3, 2, 6, 6),), (at.normal(3, 2, 6, 6),)]
    return Program(model, calls, [model], gradients=True, tolerance=1e-3)


@graph("training/transformer-block", slow=True)
def _(at: Place) -> Program:
    def make() -> nn.Module:
        return nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)

    model = at.layer(make)
    given = (at.normal(2, 5, 16, grad=True),)
    return Program(model, [given], [model], gradients=True, tolerance=1e-3)


@graph("training/embedding-tied", slow=True)
def _(at: Place) -> Program:
    table = at.layer(lambda: nn.Embedding(13, 8))

    def tied(i: Any) -> Any:
        return functional.cross_entropy(functional.linear(table(i).tanh(), table.weight), i)

    return Program(tied, [(at.integers(6, high=13),)], [table], gradients=True, tolerance=1e-4)


@graph("training/checkpoint")
def _(at: Place) -> Program:
    layer = at.layer(lambda: nn.Linear(8, 8))

    def function(x: Any) -> Any:
        y = checkpoint(lambda v: layer(v).sin() * v, x, use_reentrant=False)
        return checkpoint(lambda v: layer(v).cos(), y, use_reentrant=False)

    return Program(
        function, [(at.normal(4, 8, grad=True),)], [layer], gradients=True, tolerance=1e-4
    )


@graph("training/adamw")
def _(at: Place) -> Program:
    layer = at.layer(lambda: nn.Linear(5, 4))
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1)
    for parameter in layer.parameters():
        parameter.grad = at.normal(*parameter.shape)

    def step() -> None:
        optimizer.step()

    return Program(step, [(), ()], [layer], tolerance=1e-4)


@graph("training/sgd-foreach", slow=True)
def _(at: Place) -> Program:
    layer = at.layer(lambda: nn.Linear(5, 4))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9, foreach=True)
    for parameter in layer.parameters():
        parameter.grad = at.normal(*parameter.shape)
    return Program(lambda: optimizer.step(), [(), (), ()], [layer], tolerance=1e-4)


@graph("training/whole-step", slow=True)
def _(at: Place) -> Program:
    # Backward and optimizer outside of the compiled function, several times.
    model = at.layer(lambda: nn.Linear(6, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    loss_of = torch.compile(lambda x, y: functional.mse_loss(model(x), y))

    @eagerly
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    given = (at.normal(4, 6), at.normal(4, 2))
    return Program(step, [given] * 3, [model], tolerance=1e-4)


@graph("training/autocast")
def _(at: Place) -> Program:
    layer = at.layer(lambda: nn.Linear(8, 8))
    kind = at.type

    def function(x: Any) -> Any:
        with torch.autocast(kind, dtype=torch.bfloat16):
            y = layer(x)
            z = y.softmax(-1)
            with torch.autocast(kind, enabled=False):
                w = y.float() @ layer.weight
        return y, z, w, x @ layer.weight

    given = (at.normal(4, 8, grad=True),)
    return Program(function, [given], [layer], gradients=True, tolerance=3e-2)


@graph("training/autocast-outside", slow=True)
def _(at: Place) -> Program:
    layer = at.layer(lambda: nn.Linear(8, 8))
    kind = at.type
    compiled = torch.compile(lambda x: layer(x).relu())

    @eagerly
    def function(x: Any) -> Any:
        with torch.autocast(kind, dtype=torch.bfloat16):
            y = compiled(x)
        return y, compiled(x)

    given = (at.normal(4, 8, grad=True),)
    return Program(function, [given], [layer], gradients=True, tolerance=3e-2)


@graph("training/accumulated-gradients", slow=True)
def _(at: Place) -> Program:
    model = at.layer(lambda: nn.Linear(4, 4, bias=False))

    def function(x: Any) -> Any:
        return (model(x) * model(x.flip(0)).detach()).sum()

    x = at.normal(3, 4, grad=True)
    return Program(function, [(x,), (x,)], [model], gradients=True, tolerance=1e-4)


@graph("training/frozen-parts", slow=True)
def _(at: Place) -> Program:
    model = at.layer(lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)))
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    return Program(model, [(at.normal(3, 4),)], [model], gradients=True, tolerance=1e-4)
