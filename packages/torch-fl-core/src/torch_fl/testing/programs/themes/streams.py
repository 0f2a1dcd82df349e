"""Owns: programs in which the order of work is their own: streams, events, copies, threads.

Natively on the CPU there are no streams; there the same work is done in the order it is written.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import torch
from torch import Tensor, nn

from ..inputs import integers, loss_of, normal, on_device, state_of, trained
from ..registry import Results, program

_CYCLES = 10_000_000


class _NoStream(contextlib.nullcontext[None]):
    """What stands for streams and events where there are none."""

    def record(self, *_: object) -> None:
        """Nothing to wait for."""

    wait_stream = wait_event = record_event = synchronize = wait = record


class _Streams:
    """The streams of a device."""

    def __init__(self, device: str) -> None:
        self._module: Any = None if device == "cpu" else torch.get_device_module(device)

    def new(self) -> Any:
        """Another stream."""
        return _NoStream() if self._module is None else self._module.Stream()

    def event(self) -> Any:
        """An event that was not recorded yet."""
        return _NoStream() if self._module is None else self._module.Event()

    def current(self) -> Any:
        """The stream of this thread."""
        return _NoStream() if self._module is None else self._module.current_stream()

    def delay(self) -> None:
        """Keeps the current stream busy for some milliseconds: what does not wait for it is wrong
        then. Host memory has streams that are done at once."""
        if self._module is not None:
            self._module._sleep(_CYCLES)

    def use(self, stream: Any) -> Any:
        """The context in which a stream is the current one."""
        return stream if self._module is None else self._module.stream(stream)


def _pinned(x: Tensor, device: str) -> Tensor:
    return x if device == "cpu" else x.pin_memory()


def _long_work(x: Tensor, turns: int = 30) -> Tensor:
    for _ in range(turns):
        x = torch.tanh(x @ x.mT) * 0.1 + x
    return x


@program
def side_streams(device: str) -> Results:
    """A chain of work that goes from stream to stream."""
    streams = _Streams(device)
    first, second = streams.new(), streams.new()
    x = normal(device, 200, 200, scale=0.1)
    first.wait_stream(streams.current())
    with streams.use(first):
        streams.delay()
        y = _long_work(x)
        done = streams.event()
        done.record(streams.current())
    second.wait_event(done)
    with streams.use(second):
        streams.delay()
        z = _long_work(y * 0.5)
    streams.current().wait_stream(second)
    return {"first": y, "second": z, "sum": y + z}


@program
def backward_on_streams(device: str) -> Results:
    """Forward passes on side streams; each backward operator must run where its forward ran."""
    streams = _Streams(device)
    net = on_device(nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64)), device)
    x = normal(device, 32, 64, grad=True)
    outputs = []
    for turn in range(3):
        side = streams.new()
        side.wait_stream(streams.current())
        with streams.use(side):
            streams.delay()
            outputs.append(net(x * (turn + 1)))
        streams.current().wait_stream(side)
    loss_of(*outputs).backward()
    assert x.grad is not None
    results = {f"grad of {n}": p.grad for n, p in net.named_parameters() if p.grad is not None}
    return {**results, "x": x.grad, **{f"{i}": out.detach() for i, out in enumerate(outputs)}}


@program
def copies(device: str) -> Results:
    """Copies that do not wait, from and to pinned memory, of pieces and other dtypes."""
    streams = _Streams(device)
    source = [_pinned(normal("cpu", 300, 300, seed=seed), device) for seed in range(4)]
    targets = [_pinned(torch.zeros(300, 300), device) for _ in range(4)]
    side = streams.new()
    for x, target in zip(source, targets, strict=True):
        moved = x.to(device, non_blocking=True)
        y = moved * 2 + 1
        side.wait_stream(streams.current())
        with streams.use(side):
            streams.delay()
            target.copy_(y, non_blocking=True)
        if device != "cpu":
            y.record_stream(side)
    side.synchronize()
    results: Results = {f"{index}": target.clone() for index, target in enumerate(targets)}
    gaps = normal("cpu", 40, 60)[:, ::3]
    results["gaps"] = gaps.to(device, non_blocking=True, copy=True)
    results["dtype"] = gaps.to(device, torch.float16, non_blocking=True)
    into = torch.zeros(40, 60, device=device)
    into[:, ::3].copy_(gaps, non_blocking=True)
    results["into gaps"] = into
    back = into.to("cpu", non_blocking=False)
    return results | {"back": back}


@program
def memory_across_streams(device: str) -> Results:
    """Tensors that one stream frees while another still reads them: record_stream keeps them."""
    streams = _Streams(device)
    side = streams.new()
    sums = []
    for turn in range(8):
        x = torch.full((256, 256), float(turn), device=device)
        side.wait_stream(streams.current())
        with streams.use(side):
            streams.delay()
            sums.append(_long_work(x * 1e-3, 4).sum())
        if device != "cpu":
            x.record_stream(side)
        del x
        torch.full((256, 256), -1.0, device=device)
    streams.current().wait_stream(side)
    return {"sums": torch.stack(sums)}


@program
def threads(device: str) -> Results:
    """Threads that train models of their own on streams of their own."""
    streams = _Streams(device)
    models = [on_device(nn.Sequential(nn.Linear(32, 32), nn.ReLU()), device) for _ in range(3)]
    errors: list[BaseException] = []

    def train(index: int) -> None:
        try:
            side = streams.new()
            side.wait_stream(streams.current())
            optimizer = torch.optim.SGD(models[index].parameters(), lr=0.01 * (index + 1))
            with streams.use(side):
                for step in range(4):
                    optimizer.zero_grad()
                    x = normal(device, 16, 32, seed=10 * index + step)
                    models[index](x).square().mean().backward()
                    optimizer.step()
            side.synchronize()
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=train, args=(index,)) for index in range(len(models))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]
    results: Results = {}
    for index, model in enumerate(models):
        results |= state_of(model, f"{index}: ")
    return results


@program
def pipeline(device: str) -> Results:
    """Batches copied ahead on one stream while another trains on them."""
    streams = _Streams(device)
    ahead = streams.new()
    model = on_device(nn.Sequential(nn.Embedding(50, 16), nn.Flatten(), nn.Linear(64, 50)), device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    batches = [_pinned(integers("cpu", 50, 8, 4, seed=seed), device) for seed in range(5)]
    losses = []
    with streams.use(ahead):
        streams.delay()
        batch = batches[0].to(device, non_blocking=True)
    for index in range(len(batches)):
        streams.current().wait_stream(ahead)
        now = batch
        if device != "cpu":
            now.record_stream(streams.current())
        if index + 1 < len(batches):
            with streams.use(ahead):
                streams.delay()
                batch = batches[index + 1].to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(now), now[:, 0])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    last = trained(model, now)
    return {"losses": torch.stack(losses), **last}


@program
def device_to_device(device: str) -> Results:
    """Copies on the device: between layouts and dtypes, and within one storage."""
    x = normal(device, 40, 60)
    results: Results = {
        "cloned": x.t().clone(),
        "contiguous": x.t().contiguous(),
        "broadcast": torch.empty(3, 40, 60, device=device).copy_(x),
        "dtype": torch.empty(40, 60, dtype=torch.int32, device=device).copy_(x * 100),
        "gaps": torch.zeros(40, 120, device=device)[:, ::2].copy_(x),
        "joined": torch.cat([x, x.half().float()], 1),
        "stacked": torch.stack([x, x * 2], -1),
        "split": x.tensor_split(7)[3],
        "as strided": x.as_strided((30, 30), (1, 61), 5).clone(),
    }
    y = x.clone()
    y[1:].copy_(x[:-1])
    return results | {"moved down": y, "viewed": x.view(torch.int32)}
