"""Owns: mixed precision of `torch.flagos`: which types, and torch.amp with the device filled in."""

from __future__ import annotations

import functools

import torch

from torch_fl.flagos.devices import DEVICE_TYPE, is_available

__all__ = [
    "GradScaler",
    "autocast",
    "custom_bwd",
    "custom_fwd",
    "get_amp_supported_dtype",
    "is_bf16_supported",
]

custom_fwd = functools.partial(torch.amp.custom_fwd, device_type=DEVICE_TYPE)
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type=DEVICE_TYPE)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Types that `torch.autocast("flagos", dtype=...)` accepts."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether tensors and operators of bfloat16 work.

    Args:
        including_emulation: accepted for code written for CUDA. It changes nothing here: whether
            a kernel computes in bfloat16 or in float32 is the kernel's affair.
    """
    return is_available() and torch.bfloat16 in get_amp_supported_dtype()


class autocast(torch.amp.autocast_mode.autocast):  # noqa: N801  (as torch.autocast)
    """`torch.autocast` for flagos.

    Args:
        enabled: with False, the region runs in the types of its inputs.
        dtype: the lower precision; by default `torch.get_autocast_dtype("flagos")`.
        cache_enabled: keep casted weights for the whole region.
    """

    def __init__(
        self,
        enabled: bool = True,
        dtype: torch.dtype | None = None,
        cache_enabled: bool = True,
    ) -> None:
        super().__init__(DEVICE_TYPE, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler` for flagos; the arguments are its, without the device."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(
            DEVICE_TYPE,
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=enabled,
        )
