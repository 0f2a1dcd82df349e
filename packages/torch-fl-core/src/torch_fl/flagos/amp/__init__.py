"""Owns: mixed precision of `torch.flagos`: torch.amp with the device filled in."""

from __future__ import annotations

from torch_fl.flagos.amp import autocast_mode, common, grad_scaler
from torch_fl.flagos.amp.autocast_mode import autocast, custom_bwd, custom_fwd
from torch_fl.flagos.amp.common import (
    amp_definitely_not_available,
    get_amp_supported_dtype,
    is_bf16_supported,
)
from torch_fl.flagos.amp.grad_scaler import GradScaler

__all__ = [
    "GradScaler",
    "amp_definitely_not_available",
    "autocast",
    "autocast_mode",
    "common",
    "custom_bwd",
    "custom_fwd",
    "get_amp_supported_dtype",
    "grad_scaler",
    "is_bf16_supported",
]
