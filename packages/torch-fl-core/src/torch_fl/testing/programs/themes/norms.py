"""Owns: programs with normalization and activations."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..inputs import loss_of, normal, on_device, state_of, trained
from ..registry import Results, program

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@program
def layer_norms(device: str) -> Results:
    """Layer, RMS and group norms over sizes for which there are several kernels."""
    results: Results = {}
    for dtype in (*_DTYPES, torch.float64):
        for size in (1, 33, 64, 1024, 2050):
            layers: dict[str, nn.Module] = {
                "layer": nn.LayerNorm(size),
                "layer, plain": nn.LayerNorm(size, elementwise_affine=False),
                "layer, no bias": nn.LayerNorm(size, bias=False),
                "rms": nn.RMSNorm(size),
            }
            for name, layer in layers.items():
                x = normal(device, 3, 4, size, dtype=dtype, grad=True)
                prefix = f"{dtype} {name} {size}: "
                results |= trained(on_device(layer, device).to(dtype), x, prefix=prefix)
    return results


@program
def channel_norms(device: str) -> Results:
    """Group, instance and local response norms."""
    x = normal(device, 4, 12, 7, 9, grad=True)
    results = trained(nn.LocalResponseNorm(3), x, prefix="local response: ")
    return results | _channel_norms(device, torch.contiguous_format)


@program
def channel_norms_channels_last(device: str) -> Results:
    """The same in channels_last."""
    return _channel_norms(device, torch.channels_last)


def _channel_norms(device: str, layout: torch.memory_format) -> Results:
    layers: dict[str, nn.Module] = {
        "group": nn.GroupNorm(3, 12),
        "each channel": nn.GroupNorm(12, 12),
        "one group": nn.GroupNorm(1, 12, affine=False),
        "instance": nn.InstanceNorm2d(12, affine=True),
        "tracked": nn.InstanceNorm2d(12, track_running_stats=True),
    }
    results: Results = {}
    for dtype in _DTYPES:
        for name, layer in layers.items():
            x = normal(device, 4, 12, 7, 9, dtype=dtype).contiguous(memory_format=layout)
            moved = on_device(layer, device).to(dtype)
            results |= trained(moved, x.requires_grad_(), prefix=f"{dtype} {name}: ")
    return results


@program
def batch_norms(device: str) -> Results:
    """Batch norm in training and evaluation, with statistics kept in several ways."""
    options: dict[str, dict[str, object]] = {
        "plain": {},
        "cumulative": {"momentum": None},
        "not affine": {"affine": False},
        "not tracked": {"track_running_stats": False},
    }
    results: Results = {}
    for name, how in options.items():
        for kind, shape in (
            (nn.BatchNorm1d, (6, 5)), (nn.BatchNorm1d, (6, 5, 9)),
            (nn.BatchNorm2d, (4, 5, 6, 7)), (nn.BatchNorm3d, (2, 5, 3, 4, 4)),
        ):  # fmt: skip
            layer = on_device(kind(5, **how), device)  # type: ignore[arg-type]
            prefix = f"{name} {shape} "
            for turn in range(2):
                x = normal(device, *shape, seed=turn, grad=True)
                results |= trained(layer, x, prefix=f"{prefix}{turn}: ")
            results |= trained(layer.eval(), x, prefix=f"{prefix}evaluated: ")
    for dtype in (torch.float16, torch.bfloat16):  # low precision, its statistics not
        layer = on_device(nn.BatchNorm2d(8), device)
        x = normal(device, 4, 8, 6, 7, dtype=dtype, grad=True)
        results |= trained(layer, x, prefix=f"{dtype} and float32: ")
    return results


@program
def normed_weights(device: str) -> Results:
    """Weights that are normed: by magnitude and direction, by their spectrum, orthogonal ones."""
    from torch.nn.utils import parametrizations

    results: Results = {}
    torch.manual_seed(8)
    for name, layer in {
        "weight": parametrizations.weight_norm(nn.Conv2d(3, 5, 3)),
        "spectrum": parametrizations.spectral_norm(nn.Linear(7, 5)),
        "orthogonal": parametrizations.orthogonal(nn.Linear(7, 5)),
    }.items():
        layer = layer.to(device)
        x = normal(device, 2, 3, 8, 8) if name == "weight" else normal(device, 4, 7)
        results |= trained(layer, x, prefix=f"{name}: ") | state_of(layer, f"{name}: state ")
    old = nn.Linear(7, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        old = nn.utils.weight_norm(old).to(device)
    return results | trained(old, normal(device, 4, 7), prefix="old: ")


@program
def activations(device: str) -> Results:
    """Every activation, forward and backward, in each dtype, and through gaps."""
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "relu": F.relu, "relu6": F.relu6, "leaky": F.leaky_relu, "elu": F.elu, "selu": F.selu,
        "celu": F.celu, "gelu": F.gelu, "gelu, tanh": lambda x: F.gelu(x, approximate="tanh"),
        "silu": F.silu, "mish": F.mish, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
        "softplus": F.softplus, "logsigmoid": F.logsigmoid, "hardtanh": F.hardtanh,
        "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid, "softshrink": F.softshrink,
        "tanhshrink": F.tanhshrink, "threshold": lambda x: F.threshold(x, 0.2, -1.0),
        "glu": F.glu, "softmax": lambda x: x.softmax(-1), "softmin": lambda x: F.softmin(x, 0),
        "log_softmax": lambda x: x.log_softmax(0), "exp": torch.exp, "erf": torch.erf,
        "softmax in float32": lambda x: x.softmax(1, dtype=torch.float32),
        "square root": lambda x: x.abs().sqrt(), "power": lambda x: x.abs().pow(1.7),
        "logarithm": lambda x: x.abs().log1p(), "arctangent": lambda x: torch.atan2(x, x + 2),
    }  # fmt: skip
    results: Results = {}
    for dtype in (*_DTYPES, torch.float64):
        for name, function in functions.items():
            x = normal(device, 12, 34, dtype=dtype, scale=3.0, grad=True)
            output = function(x)
            loss_of(output).backward()
            assert x.grad is not None
            results |= {f"{dtype} {name}": output.detach(), f"{dtype} {name} grad": x.grad}
            results[f"{dtype} {name} gaps"] = function(x.detach()[::2, ::3][:, :10])
    slope = on_device(nn.PReLU(12), device)
    return results | trained(slope, normal(device, 5, 12, 7, grad=True))
