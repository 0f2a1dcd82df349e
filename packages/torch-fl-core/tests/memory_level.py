"""Owns: device memory as a level that tests return to."""

from __future__ import annotations

import gc
import time

import torch

WAIT_S = 2.0


def settled() -> int:
    """Bytes allocated now, without what only waits for the garbage collector."""
    gc.collect()
    time.sleep(0.01)
    allocated: int = torch.flagos.memory_allocated()
    return allocated


def assert_back_at(level: int) -> None:
    """No more than `level` bytes are allocated, now or in a moment.

    After backward() the engine's thread may hold the last tensors a little longer, and cycles wait
    for the garbage collector.
    """
    if torch.flagos.memory_allocated() <= level:
        return
    gc.collect()
    end = time.monotonic() + WAIT_S
    while torch.flagos.memory_allocated() > level and time.monotonic() < end:
        time.sleep(0.01)
    assert torch.flagos.memory_allocated() <= level
