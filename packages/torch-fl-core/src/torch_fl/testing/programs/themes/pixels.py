"""Owns: programs that pool, resample and move pixels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from ..inputs import (
    distinct,
    each,
    leaves_of,
    loss_of,
    normal,
)
from ..registry import Results, program


@program
def pooling(device: str) -> Results:
    """Pooling of every kind, with indices and back."""
    x = distinct(device, 2, 3, 16, 16) / 64

    def run(layer: Callable[..., object], x: torch.Tensor = x) -> Results:
        leaf = x.detach().clone().requires_grad_()
        outputs = list(leaves_of(layer(leaf)))
        loss_of(*outputs).backward()
        assert leaf.grad is not None
        results: Results = {f"{i}": part.detach() for i, part in enumerate(outputs)}
        return results | {"grad": leaf.grad}

    def unpooled(x: torch.Tensor) -> torch.Tensor:
        values, indices = F.max_pool2d(x, 2, return_indices=True)
        return F.max_unpool2d(values, indices, (2, 2))

    last = x.contiguous(memory_format=torch.channels_last)
    layers: dict[str, Callable[..., object]] = {
        "max": nn.MaxPool2d(3, stride=2, padding=1, return_indices=True),
        "max, dilated": nn.MaxPool2d(2, stride=1, dilation=2),
        "average": nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False),
        "adaptive max": nn.AdaptiveMaxPool2d(5, return_indices=True),
        "adaptive average": nn.AdaptiveAvgPool2d((5, 3)),
        "power": nn.LPPool2d(2, 3),
        "fractional": nn.FractionalMaxPool2d(2, output_ratio=0.6, return_indices=True),
        "unpooled": unpooled,
    }
    cases: dict[str, Callable[[], Results]] = {
        name: partial(run, layer) for name, layer in layers.items()
    }
    for name in ("max", "average", "adaptive average"):
        cases[f"{name}, channels last"] = partial(run, layers[name], last)
    cases["1d"] = partial(run, nn.MaxPool1d(3), x.flatten(2))
    cases["3d"] = partial(run, nn.AvgPool3d(2), x.reshape(1, 2, 3, 16, 16))
    return each(cases.items())


@program
def resampling(device: str) -> Results:
    """Interpolation, sampling at points, and moving pixels about."""
    results: Results = {}

    def show(name: str, x: torch.Tensor, output: torch.Tensor) -> None:
        loss_of(output).backward()
        assert x.grad is not None
        results[name], results[f"{name}: grad"] = output.detach(), x.grad
        x.grad = None

    x = normal(device, 2, 4, 9, 11, grad=True)
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"):
        show(f"up {mode}", x, F.interpolate(x, scale_factor=1.7, mode=mode))
        show(f"down {mode}", x, F.interpolate(x, size=(4, 5), mode=mode))
    for mode in ("bilinear", "bicubic"):
        down = F.interpolate(x, size=(4, 5), mode=mode, antialias=True)
        show(f"antialiased {mode}", x, down)
        show(f"corners {mode}", x, F.interpolate(x, size=(13, 17), mode=mode, align_corners=True))
    last = x.contiguous(memory_format=torch.channels_last)
    show("channels last", x, F.interpolate(last, scale_factor=2, mode="bilinear"))
    theta = normal(device, 2, 2, 3, seed=5, scale=0.4)
    grid = F.affine_grid(theta, [2, 4, 7, 8], align_corners=False)
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            sampled = F.grid_sample(x, grid, mode, padding, align_corners=False)
            show(f"sampled {mode} {padding}", x, sampled)
    show("shuffled", x, F.pixel_shuffle(x, 2))
    show("unfolded", x, F.unfold(x, 3, padding=1))
    show("padded", x, F.pad(x, (2, 1, 1, 2), mode="replicate"))
    return results
