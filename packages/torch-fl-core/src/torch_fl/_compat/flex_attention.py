"""Owns: FlexAttention on flagos.

Reason: `flex_attention` compares the device with a list of names that a device from outside cannot
join, and refuses gradients on the CPU, which its compiled kernels lack there. Called without
torch.compile it is made of ordinary operators, with gradients, which run on every device. Dated
2026-11, torch 2.11 to 2.15. Held by tests/interop/test_flex_attention.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from torch_fl._compat.importing import when_imported

Check = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]

_MODULE = "torch.nn.attention.flex_attention"


def install() -> None:
    """Adds flagos to the devices of FlexAttention."""
    when_imported(_MODULE, _change)


def _change(module: Any) -> None:
    module._validate_device = unless_on_flagos(module._validate_device)


def unless_on_flagos(check: Check) -> Check:
    """`check`, PyTorch's own, for tensors of other devices."""

    @functools.wraps(check)
    def checked(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if query.device.type != "flagos":
            check(query, key, value)

    return checked
