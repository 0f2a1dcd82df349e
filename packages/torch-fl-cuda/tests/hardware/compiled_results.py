"""Owns: how long results of functions live that are compiled with mode="reduce-overhead", and how
much memory those need: the same on CUDA used natively and on flagos. Run by test_compiled_graphs.py
in a child for each.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from typing import Any

import torch
from compiled_steps import BATCHES, batches, compiled, loss_of, network
from torch import Tensor


def _said(read: Callable[[], Any]) -> str:
    """What a call says, or its error, without where that came from."""
    try:
        said = read()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).partition(' Stack trace')[0]}"
    return said if isinstance(said, str) else "was read"


# What is kept of a result, and how that is read later.
READS: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Any]]] = {
    "an operator": (lambda out: out, lambda out: out + 1),
    "copying": (lambda out: out, lambda out: out.cpu()),
    "one number": (lambda out: out, lambda out: out[0, 0].item()),
    "printing": (lambda out: out, lambda out: len(repr(out))),
    "its address": (lambda out: out, lambda out: out.data_ptr()),
    "writing": (lambda out: out, lambda out: out.zero_()),
    "a view, by an operator": (lambda out: out.t(), lambda view: view * 2),
    "a part of it, by copying": (lambda out: out[1:], lambda part: part.tolist()),
    "a copy": (lambda out: out.clone(), lambda copy: copy + 1),
}


def overwritten(device: str) -> dict[str, list[str]]:
    """Reading the first and the second result of a function when there is a next one."""
    return {name: _overwritten(device, keep, read) for name, (keep, read) in READS.items()}


def _overwritten(
    device: str, keep: Callable[[Tensor], Any], read: Callable[[Any], Any]
) -> list[str]:
    torch._dynamo.reset()
    fast = compiled(lambda x: (x @ x).relu() + 1)
    x = torch.ones(8, 8, device=device)
    texts = []
    with torch.no_grad():
        kept = keep(fast(x))
        for _ in range(2):
            following = keep(fast(x))
            texts.append(_said(lambda kept=kept: read(kept)))
            kept = following
    return texts


def overwritten_silently(device: str) -> list[bool]:
    """Of results in the steady state: whether an earlier one has the values of the next."""
    fast = compiled(lambda x: x * 2)
    found = []
    with torch.no_grad():
        results = [fast(torch.full((8,), float(index), device=device)) for index in range(6)]
    for earlier, later in itertools.pairwise(results[3:]):
        found.append(torch.equal(earlier, later))
    return found


def generations(device: str, *, marked: bool) -> list[str]:
    """What has become of five results whose backward passes are still to come."""
    fast = compiled(lambda w, x: (x @ w).tanh())
    w = torch.eye(8, device=device).requires_grad_()
    inputs = [torch.full((8, 8), 0.1 * (index + 1), device=device) for index in range(5)]
    results = []
    for x in inputs:
        if marked:
            torch.compiler.cudagraph_mark_step_begin()
        results.append(fast(w, x))

    def now(out: Tensor, x: Tensor) -> str:
        return "right" if torch.allclose(out.detach().cpu(), x.cpu().tanh()) else "other values"

    pairs = zip(results, inputs, strict=True)
    return [_said(lambda out=out, x=x: now(out, x)) for out, x in pairs]


def growth(device: str, calls: int = 200) -> dict[str, list[int]]:
    """Bytes that so many calls add to what is allocated, reserved, and was so at most."""
    gpu = torch.get_device_module(device)
    net, data = network().to(device), batches(device)
    fast, loss = compiled(net), compiled(loss_of)

    def infer(x: Tensor) -> None:
        with torch.no_grad():
            fast(x + 1)

    def train(x: Tensor) -> None:
        net.zero_grad(set_to_none=True)
        loss(net, x + 1).backward()

    def levels() -> list[int]:
        gc.collect()
        gpu.synchronize()
        return [gpu.memory_allocated(), gpu.memory_reserved(), gpu.max_memory_allocated()]

    found = {}
    for name, call in {"inference": infer, "training": train}.items():
        for index in range(20):
            call(data[index % BATCHES])
        before = levels()
        for index in range(calls):
            call(data[index % BATCHES])
        pairs = zip(before, levels(), strict=True)
        found[name] = [after - earlier for earlier, after in pairs]
    return found
