"""Owns: programs under `torch.use_deterministic_algorithms`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from ..inputs import (
    distinct,
    integers,
    loss_of,
    normal,
    on_device,
    trained,
)
from ..registry import Results, program


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@program
def algorithms(device: str) -> Results:
    """Deterministic algorithms: what they give, and what has none."""
    base, source = normal(device, 8, 9), normal(device, 8, 9, seed=2)
    rows, columns = integers(device, 8, 8, seed=3), integers(device, 9, 8, seed=4)
    image, volume = normal(device, 2, 3, 9, 11), distinct(device, 1, 2, 6, 7, 8)
    calls: dict[str, Callable[[], Tensor]] = {
        "index_add": lambda: base.index_add(0, rows, source),
        "index_put": lambda: base.index_put((rows, columns), source[0, :8], accumulate=True),
        "scatter_add": lambda: base.scatter_add(0, columns.expand(8, 8) % 8, source),
        "gather": lambda: base.gather(0, rows[:, None]),
        "cumsum": lambda: base.cumsum(0),
        "uninitialized": lambda: torch.empty(30, device=device),
        "resized": lambda: torch.ones(2, device=device).resize_(20),
        "bincount": lambda: torch.bincount(rows, source[0, :8].double()),
        "median": lambda: base.median(0)[0],
        "histogram": lambda: torch.histc(base, 5),
        "put": lambda: base.put(rows, source[0, :8]),
        "product": lambda: base @ base.mT,
        "adaptive": lambda: _grad_of(nn.AdaptiveAvgPool2d(4), image),
        "padded": lambda: _grad_of(nn.ReplicationPad2d(2), image),
        "padded 3d": lambda: _grad_of(nn.ReplicationPad3d(1), volume),
        "reflected": lambda: _grad_of(nn.ReflectionPad2d(2), image),
        "pooled": lambda: _grad_of(nn.MaxPool2d(3, stride=2), image),
        "pooled 3d": lambda: _grad_of(nn.MaxPool3d(3, stride=2), volume),
    }
    results: Results = {}
    with _deterministic():
        for name, call in calls.items():
            try:
                results[name] = call()
            except RuntimeError as error:
                results[name] = f"{type(error).__name__}: {error}"
        net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(1))
        results |= trained(on_device(net, device), image)
    return results


def _grad_of(layer: nn.Module, x: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    loss_of(layer(leaf)).backward()
    assert leaf.grad is not None
    return leaf.grad


@program
def resampling(device: str) -> Results:
    """Interpolation by deterministic algorithms, which PyTorch composes where it is not the CPU."""
    image, results = normal(device, 2, 3, 9, 11), Results()
    with _deterministic():
        for mode in ("bilinear", "bicubic", "nearest", "area"):
            layer = nn.Upsample(scale_factor=2, mode=mode)
            try:
                results[mode] = _grad_of(layer, image)
            except RuntimeError as error:
                results[mode] = f"{type(error).__name__}: {error}"
    return results
