"""Owns: the settings of a process that programs change for a while, and must put back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch

__all__ = ["changed_settings", "current_settings"]

_SETTINGS: Final[Mapping[str, Callable[[], object]]] = {
    "the default dtype": torch.get_default_dtype,
    "the default device": torch.get_default_device,
    "gradients": torch.is_grad_enabled,
    "inference mode": torch.is_inference_mode_enabled,
    "the threads": torch.get_num_threads,
    "deterministic algorithms": torch.get_deterministic_debug_mode,
    "filling of uninitialized memory": lambda: (
        torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    ),
    "autocast": lambda: [torch.is_autocast_enabled(kind) for kind in _kinds()],
    "the precision of float32 products": torch.get_float32_matmul_precision,
    "TF32 in products": lambda: torch.backends.cuda.matmul.allow_tf32,
    "reduced precision in float16 products": lambda: (
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
    ),
    "reduced precision in bfloat16 products": lambda: (
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    ),
    "convolutions": lambda: (
        torch.backends.cudnn.enabled,
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.allow_tf32,
    ),
    "attention": lambda: (
        torch.backends.cuda.flash_sdp_enabled(),
        torch.backends.cuda.mem_efficient_sdp_enabled(),
        torch.backends.cuda.cudnn_sdp_enabled(),
        torch.backends.cuda.math_sdp_enabled(),
    ),
}


def current_settings() -> dict[str, object]:
    """All of them, by what they are about."""
    return {name: read() for name, read in _SETTINGS.items()}


def changed_settings(before: Mapping[str, object]) -> list[str]:
    """Those that are not as they were."""
    return [name for name, value in current_settings().items() if value != before[name]]


def _kinds() -> list[str]:
    accelerator = torch.accelerator.current_accelerator()
    return ["cpu"] if accelerator is None else ["cpu", accelerator.type]
