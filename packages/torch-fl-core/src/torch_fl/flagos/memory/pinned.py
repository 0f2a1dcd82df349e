"""Owns: statistics of pinned host memory, from which copies to a device need not wait."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from torch_fl import _C
from torch_fl.flagos.devices import _lazy_init

__all__ = [
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "reset_accumulated_host_memory_stats",
    "reset_peak_host_memory_stats",
]


def host_memory_stats() -> dict[str, Any]:
    """Statistics of the pinned memory of this process, sorted by name. Starts the runtime.

    "allocated_bytes" and "allocations" are what the allocator holds, in bytes and in pieces taken
    from the system; "active_bytes" and "active_requests" what tensors use of it. Each has
    ".current", ".peak", ".allocated" and ".freed", the last two summed over the process's life.
    "num_host_alloc" and "num_host_free" count calls to the system, and "host_alloc_time" and
    "host_free_time" have their ".total", ".max", ".min", ".avg" in microseconds and ".count".
    """
    flat: list[tuple[str, Any]] = []
    for name, value in host_memory_stats_as_nested_dict().items():
        if isinstance(value, dict):
            flat += ((f"{name}.{column}", figure) for column, figure in value.items())
        else:
            flat.append((name, value))
    return OrderedDict(sorted(flat))


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """As `host_memory_stats`, with "a.b" as two levels of dictionaries."""
    _lazy_init()
    return _C.pinned_stats()


def reset_accumulated_host_memory_stats() -> None:
    """Set every sum ("allocated", "freed") and count of `host_memory_stats` to 0."""
    _lazy_init()
    _C.reset_accumulated_pinned_stats()


def reset_peak_host_memory_stats() -> None:
    """Set every peak of `host_memory_stats` to the current value."""
    _lazy_init()
    _C.reset_peak_pinned_stats()
