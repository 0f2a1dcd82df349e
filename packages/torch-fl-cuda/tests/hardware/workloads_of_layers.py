"""Owns: pieces of work that layers are made of: attention, convolution, norms, recurrent layers,
training steps and optimizers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from workloads_of_kernels import (
    Step,
    deterministic,
    of_module,
    random,
    setting,
    with_backward,
    work,
)

bf16, fp16, fp32 = torch.bfloat16, torch.float16, torch.float32


# -- attention


def _attention(
    device: str,
    *,
    dtype: torch.dtype = bf16,
    heads: int = 8,
    keys: int = 128,
    width: int = 64,
    mask: torch.dtype | None = None,
    mask_grad: bool = False,
    backend: SDPBackend | None = None,
    train: bool = True,
    **options: Any,
) -> Step:
    q = random(device, 2, 8, 128, width, dtype=dtype, grad=train)
    k, v = (random(device, 2, heads, keys, width, dtype=dtype, grad=train) for _ in "kv")
    leaves = [q, k, v]
    if mask == torch.bool:
        options["attn_mask"] = (torch.randn(2, 1, 128, keys) > -1).to(device)
    elif mask is not None:
        options["attn_mask"] = random(device, 2, 8, 128, keys, dtype=mask, grad=mask_grad)
        leaves.append(options["attn_mask"])

    def run() -> torch.Tensor:
        if backend is None:
            return functional.scaled_dot_product_attention(q, k, v, **options)
        with sdpa_kernel([backend]):
            return functional.scaled_dot_product_attention(q, k, v, **options)

    return with_backward(run, *leaves) if train else run


_ATTENTION: dict[str, dict[str, Any]] = {
    "bf16 causal": {"is_causal": True},
    "bf16": {},
    "bf16 without gradients": {"train": False},
    "fp16 causal": {"dtype": fp16, "is_causal": True},
    "bf16 heads of 60": {"width": 60},
    "bf16 boolean mask": {"mask": torch.bool},
    "bf16 additive mask": {"mask": bf16},
    "bf16 mask with a gradient": {"mask": bf16, "mask_grad": True},
    "bf16 mask of 100 keys": {"mask": bf16, "keys": 100},
    "bf16 grouped queries": {"heads": 2, "enable_gqa": True, "is_causal": True},
    "fp32": {"dtype": fp32},
    "fp32 boolean mask": {"dtype": fp32, "mask": torch.bool},
    "fp64": {"dtype": torch.float64},
    "bf16 dropout": {"dropout_p": 0.1},
    "bf16 scale": {"scale": 0.3},
    "flash": {"backend": SDPBackend.FLASH_ATTENTION, "is_causal": True},
    "efficient": {"backend": SDPBackend.EFFICIENT_ATTENTION, "is_causal": True},
    "efficient mask": {"backend": SDPBackend.EFFICIENT_ATTENTION, "mask": bf16},
    "cudnn": {"backend": SDPBackend.CUDNN_ATTENTION, "is_causal": True},
    "math": {"backend": SDPBackend.MATH, "is_causal": True},
}
for _name, _options in _ATTENTION.items():
    work(f"attention {_name}")(partial(_attention, **_options))
work("attention refused by flash", refused=True)(
    partial(_attention, backend=SDPBackend.FLASH_ATTENTION, mask=bf16)
)


# -- convolution


def _convolution(
    device: str,
    *,
    make: Callable[..., nn.Module] = nn.Conv2d,
    dtype: torch.dtype = fp32,
    channels_last: bool = False,
    space: int = 2,
    benchmark: bool = False,
    be_deterministic: bool = False,
    **options: Any,
) -> Step:
    layer = make(32, 32, 3, padding=1, **options).to(device, dtype)
    width = 17 if benchmark else 16  # of its own: an algorithm that is known is not sought
    x = random(device, 4, 32, *([width] * space), dtype=dtype, grad=False)
    if channels_last:
        layer, x = (
            layer.to(memory_format=torch.channels_last),
            x.to(memory_format=torch.channels_last),
        )
    x.requires_grad_()
    step = with_backward(lambda: layer(x), x, *layer.parameters())

    def with_settings() -> None:
        with setting(torch.backends.cudnn, "benchmark", benchmark):
            if be_deterministic:
                with deterministic():
                    step()
            else:
                step()

    return with_settings


for _dtype, _last, _benchmark in itertools.product(
    (fp32, fp16, bf16), (False, True), (False, True)
):
    _name = f"{str(_dtype)[6:]} {'channels last' if _last else 'contiguous'}"
    work(f"conv2d {_name}{' benchmark' if _benchmark else ''}", cold=_benchmark)(
        partial(_convolution, dtype=_dtype, channels_last=_last, benchmark=_benchmark)
    )
work("conv1d")(partial(_convolution, make=nn.Conv1d, space=1))
work("conv3d")(partial(_convolution, make=nn.Conv3d, space=3))
work("conv2d transposed")(partial(_convolution, make=nn.ConvTranspose2d, stride=2))
work("conv2d depthwise")(partial(_convolution, groups=32))
work("conv2d depthwise fp16 channels last")(
    partial(_convolution, groups=32, dtype=fp16, channels_last=True)
)
work("conv2d dilated groups")(partial(_convolution, groups=4, dilation=2))
work("conv2d deterministic")(partial(_convolution, be_deterministic=True))


# -- norms


def _norm(
    device: str, make: Callable[[], nn.Module], *, dtype: torch.dtype, last: bool, train: bool
) -> Step:
    layer = make().to(device).train(train)
    if not isinstance(layer, nn.BatchNorm2d):
        layer = layer.to(dtype)
    x = random(device, 4, 32, 16, 16, dtype=dtype, grad=False)
    x = x.to(memory_format=torch.channels_last) if last else x
    x.requires_grad_()
    return with_backward(lambda: layer(x), x, *layer.parameters())


_NORMS: dict[str, Callable[[], nn.Module]] = {
    "batch_norm": lambda: nn.BatchNorm2d(32),
    "layer_norm": lambda: nn.LayerNorm([16, 16]),
    "group_norm": lambda: nn.GroupNorm(4, 32),
    "rms_norm": lambda: nn.RMSNorm([16, 16]),
    "instance_norm": lambda: nn.InstanceNorm2d(32, affine=True),
}
for (_name, _make), _dtype, _last in itertools.product(_NORMS.items(), (fp32, fp16), (False, True)):
    for _train in (True, False) if _name == "batch_norm" else (True,):
        _title = f"{_name} {str(_dtype)[6:]}{' channels last' if _last else ''}"
        work(_title if _train else f"{_title} eval")(
            partial(_norm, make=_make, dtype=_dtype, last=_last, train=_train)
        )


# -- recurrent layers


def _recurrent(
    device: str, make: Any, *, packed: bool = False, dtype: torch.dtype = fp32, **options: Any
) -> Step:
    layer = make(24, 32, num_layers=2, **options).to(device, dtype)
    x = random(device, 12, 4, 24, dtype=dtype)
    lengths = torch.tensor([12, 9, 7, 2])

    def run() -> torch.Tensor:
        if not packed:
            return layer(x)[0]
        return layer(nn.utils.rnn.pack_padded_sequence(x, lengths))[0].data

    return with_backward(run, x, *layer.parameters())


for _make in (nn.LSTM, nn.GRU, nn.RNN):
    work(f"{_make.__name__}")(partial(_recurrent, make=_make))
    work(f"{_make.__name__} packed")(partial(_recurrent, make=_make, packed=True))
    work(f"{_make.__name__} bidirectional")(partial(_recurrent, make=_make, bidirectional=True))
    work(f"{_make.__name__} dropout")(partial(_recurrent, make=_make, dropout=0.3))
work("RNN relu")(partial(_recurrent, make=nn.RNN, nonlinearity="relu"))
work("LSTM fp16")(partial(_recurrent, make=nn.LSTM, dtype=fp16))
work("LSTM projection")(partial(_recurrent, make=nn.LSTM, proj_size=16))
work("LSTM without bias")(partial(_recurrent, make=nn.LSTM, bias=False))


# -- a training step


@work("transformer layer, autocast")
def _encoder(device: str) -> Step:
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).to(device)
    x = random(device, 4, 32, 64, grad=False)

    def run() -> torch.Tensor:
        with torch.autocast(device, dtype=bf16):
            return layer(x)

    return of_module(layer, run)


@work("transformer layer, inference")
def _encoder_inference(device: str) -> Step:
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).to(device).eval()
    x = random(device, 4, 32, 64, grad=False)
    return torch.inference_mode()(lambda: layer(x))


def _optimizer(device: str, make: Any, **options: Any) -> Step:
    parameters = [random(device, 40, 20 + i) for i in range(5)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    return make(parameters, lr=0.1, **options).step


for _make, _options in itertools.product(
    (torch.optim.AdamW, torch.optim.SGD), ({}, {"fused": True}, {"foreach": False})
):
    work(f"{_make.__name__} {_options or 'default'}")(partial(_optimizer, make=_make, **_options))
work("AdamW capturable")(partial(_optimizer, make=torch.optim.AdamW, capturable=True))
work("AdamW amsgrad")(partial(_optimizer, make=torch.optim.AdamW, amsgrad=True))
work("SGD momentum")(partial(_optimizer, make=torch.optim.SGD, momentum=0.9, nesterov=True))


@work("clip_grad_norm_")
def _clip(device: str) -> Step:
    parameters = [random(device, 40, 20 + i) for i in range(5)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    return lambda: nn.utils.clip_grad_norm_(parameters, 1.0)
