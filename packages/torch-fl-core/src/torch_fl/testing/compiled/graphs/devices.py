"""Owns: devices: factories, copies between devices, queries, streams."""

from __future__ import annotations

from typing import Any

import torch

from ..program import Place, Program, graph


@graph("devices/factories")
def _(at: Place) -> Program:
    def factories(x: Any) -> Any:
        return (
            torch.arange(3, device=x.device) + 1,
            torch.full((2, 2), 5, device=x.device),
            torch.zeros_like(x),
            x.new_ones(2),
            x.new_full((3,), 2, dtype=torch.int64),
            torch.linspace(0, 1, 5, device=x.device),
            torch.eye(3, device=x.device),
            torch.tensor([1.0, 2.0], device=x.device) * 2,
            torch.empty(0, device=x.device),
            torch.tril_indices(3, 3, device=x.device),
        )

    return Program(factories, [(at.normal(4),)])


@graph("devices/no-arguments")
def _(at: Place) -> Program:
    device = at.device
    return Program(lambda: (torch.ones(3, device=device) * 2, torch.arange(4, device=device)), [()])


@graph("devices/default-device")
def _(at: Place) -> Program:
    device = at.device

    def under(x: Any) -> Any:
        with torch.device(device):
            return torch.ones(3) + x, torch.arange(2)

    return Program(under, [(at.normal(3),)])


@graph("devices/mixed")
def _(at: Place) -> Program:
    def mixed(x: Any, y: Any) -> Any:
        a = x.cpu() + y
        b = x * 2 + y.sum().to(x.device)
        return a, b, (a * 2).to(x.device) + b, torch.ones(2)

    given = (at.normal(4, grad=True), at.normal(4, device="cpu", grad=True))
    return Program(mixed, [given], gradients=True)


@graph("devices/mixed-mutation")
def _(at: Place) -> Program:
    def mixed(x: Any, y: Any) -> Any:
        y.copy_(x)
        x.add_(1)
        x[1:].copy_(y[:-1] * 3)
        return x.sum(), y.sum()

    return Program(mixed, [(at.normal(5), at.normal(5, device="cpu"))])


@graph("devices/host-only")
def _(at: Place) -> Program:
    return Program(lambda x: x.sin() + 1, [(at.normal(5, device="cpu"),)])


@graph("devices/two", devices=2)
def _(at: Place) -> Program:
    def two(x: Any, y: Any) -> Any:
        z = x * 2
        return z, y + 1, z.to(y.device) * y, torch.ones(2, device=y.device), y.to(x.device) - x

    given = (at.normal(4, device=at.numbered(0)), at.normal(4, device=at.numbered(1)))
    return Program(two, [given])


@graph("devices/second", devices=2)
def _(at: Place) -> Program:
    second = at.numbered(1)

    def function(x: Any) -> Any:
        return x.sin().sum(-1), torch.arange(3, device=x.device), torch.zeros_like(x), x.view(-1)

    return Program(function, [(at.normal(3, 4, device=second, grad=True),)], gradients=True)


@graph("devices/same-code-on-both", devices=2)
def _(at: Place) -> Program:
    given = [(at.normal(4, device=at.numbered(index)),) for index in (0, 1, 0)]
    return Program(lambda x: (x.exp() + 1, x.new_zeros(1)), given)


@graph("devices/queries")
def _(at: Place) -> Program:
    kind = at.type

    def queries(x: Any) -> Any:
        if x.device.type == kind and x.device == x.new_zeros(1).device:
            x = x + 1
        return x, x.device.type, str(x.device), x.is_cpu, getattr(x, f"is_{kind}"), x.get_device()

    return Program(queries, [(at.normal(3),)])


@graph("devices/module-calls", accelerator=True)
def _(at: Place) -> Program:
    module = at.module

    def calls(x: Any) -> Any:
        where = module.current_device()
        name = module.get_device_properties(where).name
        return x * (where + 2), module.is_available(), len(name) > 0, module.is_initialized()

    return Program(calls, [(at.normal(3),)])


@graph("devices/chosen", accelerator=True)
def _(at: Place) -> Program:
    module = at.module

    def chosen(x: Any) -> Any:
        with module.device(0):
            y = torch.ones(3, device=x.device.type) + x
        with torch.accelerator.device_index(0):
            return y * 2

    return Program(chosen, [(at.normal(3),)])


@graph("devices/synchronize", accelerator=True)
def _(at: Place) -> Program:
    module = at.module

    def calls(x: Any) -> Any:
        y = x * 2
        module.synchronize()
        torch.accelerator.synchronize()
        return y + 1

    return Program(calls, [(at.normal(3),)])


@graph("devices/streams", accelerator=True)
def _(at: Place) -> Program:
    module = at.module

    def streams(x: Any) -> Any:
        side = module.Stream()
        side.wait_stream(module.current_stream())
        with module.stream(side):
            y = x * 2
        module.current_stream().wait_stream(side)
        return y + 1

    return Program(streams, [(at.normal(3),)])


@graph("devices/stream-outside", accelerator=True)
def _(at: Place) -> Program:
    module = at.module
    side = module.Stream()

    def streams(x: Any) -> Any:
        with module.stream(side):
            y = x.cos() * 2
        side.synchronize()
        return y + 1

    return Program(streams, [(at.normal(3, grad=True),)], gradients=True)


@graph("devices/events", accelerator=True)
def _(at: Place) -> Program:
    module = at.module

    def events(x: Any) -> Any:
        y = x.sin()
        event = module.Event()
        event.record()
        event.wait()
        return y + 1

    return Program(events, [(at.normal(3),)])


@graph("devices/sparse")
def _(at: Place) -> Program:
    def product(m: Any, x: Any) -> Any:
        return torch.mm(m, x) + 1

    m = torch.eye(4, device=at.device).to_sparse()
    return Program(product, [(m, at.normal(4, 3))])
