"""Owns: programs whose result is how much device memory they need at most.

A side that saves more for the backward pass, or makes one copy more, has another peak.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..inputs import integers, loss_of, normal, on_device
from ..registry import Results, program


def _peaks(device: str, step: Callable[[], object]) -> Results:
    """Bytes at most and in the end, beyond those before, of steps that libraries are warm for."""
    module = torch.get_device_module(device)
    for _ in range(2):
        step()
    module.synchronize()
    module.empty_cache()
    before = int(module.memory_allocated())
    module.reset_peak_memory_stats()
    step()
    module.synchronize()
    peak, after = int(module.max_memory_allocated()), int(module.memory_allocated())
    return {"peak": torch.tensor(peak - before), "afterwards": torch.tensor(after - before)}


def _training(device: str, net: nn.Module, x: Any, **how: Any) -> Callable[[], object]:
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, **how)

    def step() -> None:
        optimizer.zero_grad()
        loss_of(net(x)).backward()
        optimizer.step()

    return step


@program(accelerator=True)
def dense_training(device: str) -> Results:
    """Linear layers, activations, layer norm, dropout."""
    net = nn.Sequential(
        nn.Linear(512, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Dropout(0.1), nn.Linear(1024, 512)
    )
    step = _training(device, on_device(net, device), normal(device, 512, 512))
    return _peaks(device, step)


@program(accelerator=True)
def convolution_training(device: str) -> Results:
    """Convolutions and batch norm in channels_last with autocast."""
    net = nn.Sequential(
        nn.Conv2d(16, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
        nn.MaxPool2d(2), nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
    )  # fmt: skip
    net = on_device(net, device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = normal(device, 8, 16, 64, 64).contiguous(memory_format=torch.channels_last)

    def step() -> None:
        net.zero_grad()
        with torch.autocast(device, torch.float16):
            y = net(x)
        y.float().square().mean().backward()

    return _peaks(device, step)


@program(accelerator=True)
def attention_training(device: str) -> Results:
    """Attention over sequences whose scores would be most of the memory."""
    q, k, v = (
        normal(device, 2, 8, 1024, 64, seed=s, dtype=torch.bfloat16, grad=True) for s in range(3)
    )

    def step() -> None:
        for leaf in (q, k, v):
            leaf.grad = None
        F.scaled_dot_product_attention(q, k, v, is_causal=True).float().mean().backward()

    return _peaks(device, step)


@program(accelerator=True)
def recurrent_training(device: str) -> Results:
    """A recurrent layer, whose library keeps what it needs for the backward pass in one piece."""
    layer = on_device(nn.LSTM(128, 256, num_layers=2, dropout=0.2), device)
    return _peaks(device, _training(device, layer, normal(device, 64, 32, 128)))


@program(accelerator=True)
def embedding_training(device: str) -> Results:
    """A vocabulary's embedding and cross entropy over it."""
    net = on_device(nn.Sequential(nn.Embedding(8000, 128), nn.Linear(128, 8000)), device)
    tokens = integers(device, 8000, 4, 256)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()

    return _peaks(device, step)


@program(accelerator=True)
def optimizer_steps(device: str) -> Results:
    """Steps of optimizers alone, in each implementation."""
    results: Results = {}
    for name, how in {
        "default": {},
        "loop": {"foreach": False},
        "foreach": {"foreach": True},
        "fused": {"fused": True},
    }.items():
        net = on_device(nn.Sequential(*(nn.Linear(256, 256) for _ in range(8))), device)
        loss_of(net(normal(device, 4, 256))).backward()
        optimizer = torch.optim.AdamW(net.parameters(), **how)  # type: ignore[arg-type]
        peaks = _peaks(device, lambda optimizer=optimizer: optimizer.step())  # type: ignore[misc]
        results |= {f"{name}: {key}": value for key, value in peaks.items()}
    return results


@program(accelerator=True)
def inference(device: str) -> Results:
    """A forward pass in which every intermediate result can be freed at once."""
    layers = [layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    net = on_device(nn.Sequential(*layers), device)
    x = normal(device, 1024, 1024)

    def step() -> None:
        with torch.inference_mode():
            net(x)

    return _peaks(device, step)


@program(accelerator=True)
def allocations(device: str) -> Results:
    """How many times a training step takes memory from the allocator."""
    module = torch.get_device_module(device)
    net = on_device(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)), device)
    step = _training(device, net, normal(device, 16, 64))
    step()
    before = module.memory_stats()["allocation.all.allocated"]
    step()
    count = module.memory_stats()["allocation.all.allocated"] - before
    return {"count": torch.tensor(int(count))}
