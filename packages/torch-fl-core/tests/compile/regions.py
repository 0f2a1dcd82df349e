"""Owns: regions made by hand, as the compiler makes them, and what their tests ask of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_fl import _C

FLAGOS = "flagos"


def region(
    call: Callable[[list[Any]], Any], devices: list[int], written: tuple[int, ...] = ()
) -> Callable[[list[Any]], Any]:
    return _C.CompiledRegion(call, devices, list(written))


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, device=FLAGOS)


def memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
