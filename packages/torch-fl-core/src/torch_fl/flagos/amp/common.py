"""Owns: which types mixed precision may use."""

from __future__ import annotations

import torch

from torch_fl.flagos.devices import is_available

__all__ = ["amp_definitely_not_available", "get_amp_supported_dtype", "is_bf16_supported"]


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


def amp_definitely_not_available() -> bool:
    """Whether there is no device that mixed precision could run on."""
    return not is_available()
