"""Owns: one call, the seed before it, and the record of what it leaves behind.

It judges nothing; ``compare`` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .movers import Arguments


@dataclass(frozen=True)
class Outcome:
    """What a call returned, its tensor arguments as it left them, and their version bumps."""

    result: Any
    inputs: list[torch.Tensor]
    version_bumps: list[int]
    reshaped: list[bool]
    """whether the call changed an input's shape"""
    moved: list[tuple[bool, bool]]
    """whether an input has another storage since the call, and whether another address"""


def storage_of(tensor: torch.Tensor) -> tuple[int, int] | None:
    """The identity of a tensor's StorageImpl and the address of its memory, if it has one."""
    if tensor.layout != torch.strided or tensor._is_zerotensor():
        return None
    storage = tensor.untyped_storage()
    return storage._cdata, storage.data_ptr()


def seed_generators(device: torch.device, seed: int) -> None:
    """Seed the default generators of the CPU and of ``device``.

    What ``torch.manual_seed`` does, but for these two only: it also formats a stack trace for
    each accelerator that is not there, 2 ms a call, most of the time of a whole run.
    """
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed_all(seed)


def perform(
    function: Callable[..., Any], arguments: Arguments, device: torch.device, seed: int
) -> Outcome:
    """Seed, call, and record. Whatever the call raises passes through."""
    inputs = arguments.tensors()
    before = [tensor._version for tensor in inputs]
    shapes = [tensor.shape for tensor in inputs]
    storages = [storage_of(tensor) for tensor in inputs]
    seed_generators(device, seed)
    result = function(*arguments.positional, **arguments.keyword)
    bumps = [tensor._version - old for tensor, old in zip(inputs, before, strict=True)]
    reshaped = [tensor.shape != old for tensor, old in zip(inputs, shapes, strict=True)]
    moved = [_moved(old, storage_of(t)) for t, old in zip(inputs, storages, strict=True)]
    return Outcome(result, inputs, bumps, reshaped, moved)


def _moved(old: tuple[int, int] | None, new: tuple[int, int] | None) -> tuple[bool, bool]:
    if old is None or new is None:
        return old is not new, old is not new
    return old[0] != new[0], old[1] != new[1]
