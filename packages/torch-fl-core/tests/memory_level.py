"""Owns: the assertion that device memory is back at a level."""

from __future__ import annotations

import gc
import time

import torch


def assert_allocated(expected: int) -> None:
    """`expected` bytes are allocated, now or in a moment.

    After backward() the engine's thread may hold the last tensors a little longer, and cycles wait
    for the garbage collector.
    """
    for _ in range(200):
        if torch.flagos.memory_allocated() == expected:
            return
        gc.collect()
        time.sleep(0.01)
    assert torch.flagos.memory_allocated() == expected
