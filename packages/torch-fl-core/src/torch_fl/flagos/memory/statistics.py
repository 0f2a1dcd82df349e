"""Owns: statistics of device memory. Asking starts nothing: before the first use all is 0."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch
from typing_extensions import deprecated

from torch_fl.flagos.devices import DEVICE_TYPE, _existing_index, is_initialized

if TYPE_CHECKING:
    from torch.types import Device

__all__ = [
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
]

# What torch.cuda names otherwise or sums up, by the name that other stacks have for it.
_FLAT = {
    "allocated_bytes": "allocated_bytes.all.current",
    "reserved_bytes": "reserved_bytes.all.current",
    "peak_allocated_bytes": "allocated_bytes.all.peak",
    "peak_reserved_bytes": "reserved_bytes.all.peak",
    "num_alloc_calls": "allocation.all.allocated",
    "num_free_calls": "allocation.all.freed",
    "num_device_malloc": "num_device_alloc",
}


def _torch_stats(device: Device) -> OrderedDict[str, Any]:
    if device is None and not is_initialized():
        return OrderedDict()  # even where there is no device at all
    index = _existing_index(device)
    return torch.accelerator.memory_stats(index) if is_initialized() else OrderedDict()


def memory_stats(device: Device = None) -> OrderedDict[str, Any]:
    """Statistics of the allocator, sorted by name; empty before the first use.

    Names are those of torch.cuda.memory_stats: "allocated_bytes.all.current" is the memory of
    live tensors, "reserved_bytes.all.peak" the most ever held, "num_ooms" the failed requests.
    Beside them stand the sums under one name each: "allocated_bytes", "reserved_bytes",
    "peak_allocated_bytes", "peak_reserved_bytes", "num_alloc_calls", "num_free_calls",
    "num_device_malloc", "num_device_free" and "num_alloc_retries". Sizes are bytes, the rest are
    counts.
    """
    stats = _torch_stats(device)
    if not stats:
        return stats
    flat = {name: stats[source] for name, source in _FLAT.items() if source in stats}
    return OrderedDict(sorted({**stats, **flat}.items()))


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """As `memory_stats`, with "a.b.c" as three levels of dictionaries, without the sums."""
    nested: dict[str, Any] = {}
    for name, value in _torch_stats(device).items():
        *path, last = name.split(".")
        level = nested
        for part in path:
            level = level.setdefault(part, {})
        level[last] = value
    return nested


def _stat(device: Device, name: str) -> int:
    value: int = _torch_stats(device).get(name, 0)
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


def _warn_resets_all(name: str) -> None:
    warnings.warn(
        f"torch.{DEVICE_TYPE}.{name} calls torch.{DEVICE_TYPE}.reset_peak_memory_stats, which "
        "resets all peaks.",
        FutureWarning,
        stacklevel=3,
    )


def reset_max_memory_allocated(device: Device = None) -> None:
    """Deprecated: `reset_peak_memory_stats`, which resets all peaks."""
    _warn_resets_all("reset_max_memory_allocated")
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: Device = None) -> None:
    """Deprecated: `reset_peak_memory_stats`, which resets all peaks."""
    _warn_resets_all("reset_max_memory_cached")
    reset_peak_memory_stats(device)


@deprecated("`memory_cached` has been renamed to `memory_reserved`", category=FutureWarning)
def memory_cached(device: Device = None) -> int:
    """Deprecated: `memory_reserved`, in bytes."""
    return memory_reserved(device)


@deprecated("`max_memory_cached` has been renamed to `max_memory_reserved`", category=FutureWarning)
def max_memory_cached(device: Device = None) -> int:
    """Deprecated: `max_memory_reserved`, in bytes."""
    return max_memory_reserved(device)
