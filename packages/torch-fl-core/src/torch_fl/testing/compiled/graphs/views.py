"""Owns: views, aliases and arguments that are written to."""

from __future__ import annotations

from typing import Any

import torch

from ..program import Place, Program, eagerly, graph


@graph("views/mutation")
def _(at: Place) -> Program:
    def mutation(x: Any, y: Any) -> Any:
        x.add_(1)
        y[:, 0] = x[:, 1]
        y.t().mul_(2)
        return x * y

    return Program(mutation, [(at.normal(5, 6), at.normal(5, 6))])


@graph("views/mutated-view")
def _(at: Place) -> Program:
    def mutation(x: Any) -> Any:
        x.relu_()
        return x.sum()

    return Program(mutation, [(at.normal(6, 8)[1:4, ::2],), (at.normal(8, 8).t(),)], dynamic=False)


@graph("views/returned")
def _(at: Place) -> Program:
    def returned(x: Any) -> Any:
        y = x + 1
        return x.view(-1), x, y, y.t(), y[1:], x[..., None]

    return Program(returned, [(at.normal(4, 5),)])


@graph("views/returned-gradients")
def _(at: Place) -> Program:
    def returned(x: Any) -> Any:
        y = x * 2
        return y, y.view(-1), x.t()

    return Program(returned, [(at.normal(4, 5, grad=True),)], gradients=True)


@graph("views/same-twice")
def _(at: Place) -> Program:
    def twice(x: Any, y: Any) -> Any:
        return x + y, x

    x, y = at.normal(7), at.normal(7)
    return Program(twice, [(x, x), (x, y), (y, y)])


@graph("views/overlapping-arguments")
def _(at: Place) -> Program:
    def overlapping(x: Any, y: Any) -> Any:
        x.mul_(2)
        return y + 1

    base = at.normal(4, 6)
    return Program(overlapping, [(base[:2], base[1:3]), (base, base.t())], dynamic=False)


@graph("views/strided-arguments")
def _(at: Place) -> Program:
    def strided(x: Any) -> Any:
        return x * 2 + 1, x.reshape(-1)[::3]

    base = at.normal(9, 16)
    forms = [
        base[1::2],
        base[:, 3:11],
        base.t(),
        base[:1].expand(4, 16),
        base.as_strided((3, 4), (20, 2), 5),
    ]
    return Program(strided, [(form,) for form in forms[:3]], dynamic=False)


@graph("views/strided-arguments-more", slow=True)
def _(at: Place) -> Program:
    base = at.normal(9, 16)
    forms = [base[:1].expand(4, 16), base.as_strided((3, 4), (20, 2), 5), base.flip(0), base[1, 1]]
    return Program(lambda x: x * 2 + 1, [(form,) for form in forms], dynamic=False)


@graph("views/out-argument")
def _(at: Place) -> Program:
    def out(x: Any, to: Any) -> Any:
        torch.add(x, 1, out=to)
        torch.sum(x, 0, out=to[0])
        return to * 2

    return Program(out, [(at.normal(3, 4), at.normal(3, 4))])


@graph("views/detached")
def _(at: Place) -> Program:
    def detached(x: Any) -> Any:
        return x.detach(), x * x.detach(), x.detach().view(-1) + 1

    return Program(detached, [(at.normal(4, 3, grad=True),)], gradients=True)


@graph("views/nothing-computed")
def _(at: Place) -> Program:
    return Program(lambda x, y: (x, y.view(-1), None, 3, [x]), [(at.normal(3), at.normal(2, 2))])


@graph("views/copies")
def _(at: Place) -> Program:
    # A copy to another device is never the same memory, also where both are the host's.
    def copies(x: Any, y: Any) -> Any:
        return x.cpu(), y.to(x.device), x.to(x.device), x.clone(), x.contiguous()

    return Program(copies, [(at.normal(5, 3), at.normal(3, device="cpu"))])


@graph("views/mutated-after-copy")
def _(at: Place) -> Program:
    def mutated(x: Any) -> Any:
        before = x.cpu() if x.device.type != "cpu" else x.clone()
        x.mul_(3)
        return before, x.to("cpu", copy=True) - before

    return Program(mutated, [(at.normal(6),)])


@graph("views/set-and-resize")
def _(at: Place) -> Program:
    def shapes(x: Any) -> Any:
        y = torch.empty_like(x)
        y.copy_(x)
        y.unsqueeze_(0)
        y.transpose_(0, 1)
        return y, torch.diagonal(x), x.unfold(0, 2, 1), torch.broadcast_to(x, (2, 4, 4))

    return Program(shapes, [(at.normal(4, 4),)])


@graph("views/unbound-pieces")
def _(at: Place) -> Program:
    def pieces(x: Any) -> Any:
        a, b = x.split(2)
        c, *_ = x.unbind(1)
        return a + 1, b, c, [part * 2 for part in x.tensor_split(3, 1)]

    return Program(pieces, [(at.normal(4, 6, grad=True),)], gradients=True)


@graph("views/saved-then-changed")
def _(at: Place) -> Program:
    def changed(x: Any) -> Any:
        weight = torch.ones(3, device=x.device, requires_grad=True)
        return (x * weight).sum(), weight

    @eagerly
    def run(x: Any) -> Any:
        loss, _ = compiled(x)
        x.add_(1)  # the backward pass needs what x was
        loss.backward()

    compiled = torch.compile(changed)
    return Program(run, [(at.normal(3),)], raises=RuntimeError)
