"""Owns: device memory of `torch.flagos`: statistics, limits, the cache. All sizes are bytes.

Asking starts nothing: before the first use every figure is 0. Wherever a device is taken: an
index, "flagos:1", torch.device or None for the current one; ValueError for another device type,
RuntimeError for an index that does not exist.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch

from torch_fl import _C
from torch_fl.flagos.devices import DEVICE_TYPE, _existing_index, _lazy_init, is_initialized

if TYPE_CHECKING:
    from torch.types import Device

__all__ = [
    "empty_cache",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
]


def empty_cache() -> None:
    """Give memory that is cached but not in use by a tensor back, on every device."""
    if is_initialized():
        torch.accelerator.empty_cache()


def memory_stats(device: Device = None) -> OrderedDict[str, Any]:
    """Statistics of the allocator, sorted by name; empty before the first use.

    Names are those of torch.cuda.memory_stats: "allocated_bytes.all.current" is the memory of
    live tensors, "reserved_bytes.all.peak" the most ever held, "num_ooms" the failed requests.
    Sizes are bytes, the rest are counts.
    """
    if device is None and not is_initialized():
        return OrderedDict()  # even where there is no device at all
    index = _existing_index(device)
    return torch.accelerator.memory_stats(index) if is_initialized() else OrderedDict()


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """As `memory_stats`, with "a.b.c" as three levels of dictionaries."""
    nested: dict[str, Any] = {}
    for name, value in memory_stats(device).items():
        *path, last = name.split(".")
        level = nested
        for part in path:
            level = level.setdefault(part, {})
        level[last] = value
    return nested


def _stat(device: Device, name: str) -> int:
    value: int = memory_stats(device).get(name, 0)
    return value


def memory_allocated(device: Device = None) -> int:
    """Bytes that live tensors occupy, rounded up as the allocator does."""
    return _stat(device, "allocated_bytes.all.current")


def max_memory_allocated(device: Device = None) -> int:
    """Most bytes that tensors occupied since the start or `reset_peak_memory_stats`."""
    return _stat(device, "allocated_bytes.all.peak")


def memory_reserved(device: Device = None) -> int:
    """Bytes that the allocator holds, in use or cached."""
    return _stat(device, "reserved_bytes.all.current")


def max_memory_reserved(device: Device = None) -> int:
    """Most bytes that the allocator held since the start or `reset_peak_memory_stats`."""
    return _stat(device, "reserved_bytes.all.peak")


def reset_peak_memory_stats(device: Device = None) -> None:
    """Set every peak to the current value."""
    index = _existing_index(device)
    if is_initialized():
        torch.accelerator.reset_peak_memory_stats(index)


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Set every historical sum ("allocated", "freed") and event counter to 0."""
    index = _existing_index(device)
    if is_initialized():
        torch.accelerator.reset_accumulated_memory_stats(index)


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """(free, total) bytes of the device, all processes counted. Starts the runtime."""
    _lazy_init()
    return _C.memory_info(_existing_index(device))


_SUMMARY_ROWS = (
    ("Allocated memory", "allocated_bytes"),
    ("Active memory", "active_bytes"),
    ("Requested memory", "requested_bytes"),
    ("Reserved memory", "reserved_bytes"),
    ("Non-releasable memory", "inactive_split_bytes"),
    ("Allocations", "allocation"),
    ("Active allocations", "active"),
    ("Reserved segments", "segment"),
    ("Non-releasable blocks", "inactive_split"),
)
_SUMMARY_COLUMNS = ("current", "peak", "allocated", "freed")
_POOLS = {"all": "", "large_pool": "  large pool", "small_pool": "  small pool"}


def _size(nbytes: int) -> str:
    """A size with four digits at most, as in "1536 B", "64.0 MiB"."""
    if abs(nbytes) < 10_000:
        return f"{nbytes} B"
    value = float(nbytes)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if abs(value) < 1000:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """A table of `memory_stats` for reading: now, peak, and ever allocated and freed.

    Args:
        device: the device, the current one by default.
        abbreviated: leave the split into large and small blocks out.
    """
    stats = memory_stats(device)
    rows: list[tuple[str, ...]] = [("", "current", "peak", "total allocated", "total freed")]
    for title, metric in _SUMMARY_ROWS:
        show = _size if metric.endswith("_bytes") else str
        for pool, label in _POOLS.items():
            if pool == "all" or not abbreviated:
                values = (stats.get(f"{metric}.{pool}.{column}", 0) for column in _SUMMARY_COLUMNS)
                rows.append((label or title, *(show(value) for value in values)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
    rule = "-" * len(lines[0])
    return "\n".join(
        [
            f"Memory of {DEVICE_TYPE}:{_existing_index(device)}: "
            f"{stats.get('num_ooms', 0)} out-of-memory errors, "
            f"{stats.get('num_alloc_retries', 0)} retried requests",
            rule,
            lines[0],
            rule,
            *lines[1:],
            rule,
        ]
    )
