"""Owns: PyTorch's attention layers under flagos' autocast.

Reason: in evaluation `nn.MultiheadAttention` and the Transformer encoder have a fast path, one
fused operator below autocast. They leave it where `torch.is_autocast_enabled()` says so, which
without a device means CUDA's autocast; so on flagos autocast would be ignored, or meet an operator
that wants one dtype. The switch that turns the fast path off is asked first and is a function of
PyTorch in Python. Dated 2026-11, torch 2.11 to 2.15. Held by tests/test_autocast.py.
"""

from __future__ import annotations

from typing import Any

import torch


def install() -> None:
    """Turns the fast path off inside of flagos' autocast."""
    mha: Any = torch.backends.mha
    mha.get_fastpath_enabled = get_fastpath_enabled


# Compiled by TorchScript as well, which leaves the first branch out, as PyTorch's own does.
def get_fastpath_enabled() -> bool:
    """Whether the layers may take their fast path; `True` while they are scripted."""
    if not torch.jit.is_scripting():
        allowed: bool = torch.backends.mha._is_fastpath_enabled
        return allowed and not torch.is_autocast_enabled("flagos")
    return True
