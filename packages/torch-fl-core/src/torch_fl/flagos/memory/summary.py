"""Owns: statistics of device memory as a table for reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch_fl.flagos.devices import DEVICE_TYPE, _existing_index
from torch_fl.flagos.memory.statistics import memory_stats

if TYPE_CHECKING:
    from torch.types import Device

__all__ = ["memory_summary"]

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
