"""Owns: programs with convolutions: layouts, mixed precision, algorithms."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from ..inputs import (
    gradients_of,
    loss_of,
    normal,
    on_device,
    state_of,
    trained,
)
from ..registry import Results, program


def _net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, groups=4),
        nn.BatchNorm2d(32, momentum=0.3),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


@program
def conv_net(device: str) -> Results:
    """Two steps of training, then evaluation with the running statistics of these."""
    net = on_device(_net(), device)
    x = normal(device, 4, 3, 32, 32, grad=True)
    results = trained(net, x) | trained(net, x, prefix="second ")
    net.eval()
    results |= trained(net, x, prefix="evaluated ")
    with torch.no_grad():
        results["without gradients"] = net(x)
    return results


@program
def channels_last(device: str) -> Results:
    """The same in channels_last: strides of outputs and gradients, from both kinds of input."""
    net = on_device(_net(), device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = normal(device, 4, 3, 32, 32)
    last = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    results = trained(net, last) | trained(net, x.requires_grad_(), prefix="contiguous input ")
    for index, layer in enumerate(net.eval()):
        last = layer(last)
        results[f"after layer {index}"] = last.detach()
    return results


def _scaled_training(device: str, dtype: torch.dtype) -> Results:
    net = on_device(_net(), device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler(device, init_scale=256.0, growth_interval=2)
    x = normal(device, 4, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    results: Results = {}
    for step in range(3):
        optimizer.zero_grad()
        with torch.autocast(device, dtype):
            output = net(x)
        loss = F.cross_entropy(output.float(), torch.arange(4, device=device))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        results |= {f"output {step}": output.detach(), f"loss {step}": loss.detach()}
        results[f"norm {step}"] = norm
    return results | state_of(net) | {"scale": torch.tensor(scaler.get_scale())}


@program
def mixed_precision_fp16(device: str) -> Results:
    """Training with autocast to float16 and a GradScaler."""
    return _scaled_training(device, torch.float16)


@program
def mixed_precision_bf16(device: str) -> Results:
    """Training with autocast to bfloat16 and a GradScaler."""
    return _scaled_training(device, torch.bfloat16)


@program
def scaler_overflow(device: str) -> Results:
    """A GradScaler that finds infinite gradients, skips the step and lowers its scale."""
    net = on_device(nn.Linear(8, 4), device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**16, growth_interval=1)
    results: Results = {}
    for step, factor in enumerate((1.0, 1e38, 1.0)):
        optimizer.zero_grad()
        scaler.scale(net(normal(device, 6, 8)).square().mean() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        results |= state_of(net, f"step {step} ")
        results[f"scale {step}"] = torch.tensor(scaler.get_scale())
    return results


@program
def convolutions(device: str) -> Results:
    """Convolutions of every kind, forward and backward."""
    layers: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
        "1d": (nn.Conv1d(4, 6, 5, padding=2, dilation=2), (2, 4, 31)),
        "grouped": (nn.Conv2d(8, 12, 3, groups=4), (2, 8, 15, 15)),
        "depthwise": (nn.Conv2d(8, 16, 3, padding=1, groups=8), (2, 8, 15, 15)),
        "pointwise": (nn.Conv2d(8, 16, 1), (2, 8, 15, 15)),
        "strided, dilated": (nn.Conv2d(4, 8, 3, stride=2, dilation=2), (2, 4, 17, 17)),
        "same": (nn.Conv2d(4, 8, 4, padding="same"), (2, 4, 17, 17)),
        "circular": (nn.Conv2d(4, 8, 3, padding=1, padding_mode="circular"), (2, 4, 9, 9)),
        "reflect": (nn.Conv2d(4, 8, 3, padding=1, padding_mode="reflect"), (2, 4, 9, 9)),
        "3d": (nn.Conv3d(2, 4, 3, padding=1), (2, 2, 7, 9, 9)),
        "unbatched": (nn.Conv2d(4, 8, 3), (4, 9, 9)),
        "empty batch": (nn.Conv2d(4, 8, 3), (0, 4, 9, 9)),
        "transposed 1d": (nn.ConvTranspose1d(4, 6, 3, stride=2), (2, 4, 11)),
        "transposed": (nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), (2, 4, 9, 9)),
        "transposed, grouped": (nn.ConvTranspose2d(4, 8, 4, groups=2), (2, 4, 9, 9)),
        "transposed 3d": (nn.ConvTranspose3d(2, 3, 3, stride=2), (1, 2, 5, 5, 5)),
    }
    results: Results = {}
    for name, (layer, shape) in layers.items():
        x = normal(device, *shape, grad=True)
        results |= trained(on_device(layer, device), x, prefix=f"{name}: ")
    return results


@program
def convolution_dtypes(device: str) -> Results:
    """Convolutions and batch norm in float64, float16 and bfloat16, in both layouts."""
    results: Results = {}
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        for layout in (torch.contiguous_format, torch.channels_last):
            layer = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16))
            layer = on_device(layer, device).to(dtype=dtype, memory_format=layout)  # type: ignore[call-overload]
            x = normal(device, 4, 8, 12, 12, dtype=dtype).contiguous(memory_format=layout)
            results |= trained(layer, x.requires_grad_(), prefix=f"{dtype} {layout}: ")
    return results


@program
def convolution_settings(device: str) -> Results:
    """Algorithms chosen by trial, deterministic ones, without TF32, and without the library."""
    settings = {
        "trial": {"benchmark": True},
        "deterministic": {"deterministic": True},
        "deterministic trial": {"benchmark": True, "deterministic": True},
        "full precision": {"allow_tf32": False},
        "reduced precision": {"allow_tf32": True},
        "no library": {"enabled": False},
    }
    results: Results = {}
    for name, setting in settings.items():
        now = torch.backends.cudnn
        flags = {
            "enabled": now.enabled,
            "benchmark": now.benchmark,
            "deterministic": now.deterministic,
            "allow_tf32": now.allow_tf32,
            **setting,
        }
        with torch.backends.cudnn.flags(**flags):
            layer = on_device(nn.Conv2d(16, 32, 3, padding=1), device)
            x = normal(device, 8, 16, 20, 20, grad=True)
            results |= trained(layer, x, prefix=f"{name}: ")
    return results


@program
def convolution_second_order(device: str) -> Results:
    """Gradients of a penalty on gradients, through convolution, batch norm and pooling."""
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.Tanh(), nn.AvgPool2d(2),
        nn.Conv2d(6, 4, 3), nn.Softplus(),
    )  # fmt: skip
    net = on_device(net, device)
    x = normal(device, 2, 3, 12, 12, grad=True)
    (first,) = torch.autograd.grad(loss_of(net(x)), x, create_graph=True)
    first.square().sum().backward()
    assert x.grad is not None
    return {"first": first.detach(), "of the input": x.grad, **gradients_of(net)}
