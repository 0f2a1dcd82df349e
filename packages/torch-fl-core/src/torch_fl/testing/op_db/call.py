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
    seed_generators(device, seed)
    result = function(*arguments.positional, **arguments.keyword)
    bumps = [tensor._version - old for tensor, old in zip(inputs, before, strict=True)]
    return Outcome(result, inputs, bumps)
