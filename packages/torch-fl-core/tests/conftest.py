"""Owns: state of the whole process, which every test must leave as it found it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

import torch_fl  # noqa: F401  (makes the device)

if TYPE_CHECKING:
    from collections.abc import Iterator


def _state() -> dict[str, Any]:
    """What tests that come later in this process would be disturbed by."""
    nesting = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return {
        "threads of kernels": torch.get_num_threads(),
        "nested autocast regions": nesting,
        "autocast": [torch.is_autocast_enabled(kind) for kind in ("cpu", "flagos")],
        "cache of casts": torch.is_autocast_cache_enabled(),
        "gradients": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "deterministic algorithms": torch.get_deterministic_debug_mode(),
        "current device": torch.flagos.current_device() if torch.flagos.is_initialized() else 0,
    }


@pytest.fixture(autouse=True)
def _process_as_found() -> Iterator[None]:
    before = _state()
    yield
    after = _state()
    assert after == before, "a test left a setting of the process changed"
