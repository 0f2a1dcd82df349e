"""Owns: how much device memory there is, who has it, and how much of it this process may take."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from torch_fl import _C
from torch_fl.flagos import _target
from torch_fl.flagos.devices import DEVICE_TYPE, _existing_index, _lazy_init, is_initialized
from torch_fl.flagos.memory.statistics import memory_reserved

if TYPE_CHECKING:
    from torch.types import Device

__all__ = [
    "device_memory_used",
    "empty_cache",
    "get_per_process_memory_fraction",
    "list_gpu_processes",
    "mem_get_info",
    "set_per_process_memory_fraction",
]

_OWN = "the core answers this itself."  # never shown: both ways are taken before


def empty_cache() -> None:
    """Give memory that is cached but not in use by a tensor back, on every device."""
    if is_initialized():
        torch.accelerator.empty_cache()


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """(free, total) bytes of the device, all processes counted. Starts the runtime."""
    _lazy_init()
    return _C.memory_info(_existing_index(device))


def device_memory_used(device: Device = None) -> int:
    """Bytes of the device that are in use, all processes counted. Starts the runtime."""
    free, total = mem_get_info(device)
    return total - free


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Limit what this process may reserve of a device. Starts the runtime.

    What is reserved already stays. A request that would go past the limit empties the cache, and
    raises torch.OutOfMemoryError if that does not help.

    Args:
        fraction: share of the device's total memory, 0.0 to 1.0.
        device: the device, the current one by default.

    Raises:
        TypeError: `fraction` is no float.
        ValueError: `fraction` is outside the range.
        NotImplementedError: the backend has no such limit.
    """
    _lazy_init()
    index = _existing_index(device)
    if not isinstance(fraction, float):
        raise TypeError(f"fraction must be a float, but is a {type(fraction).__name__}")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    if _target.on_host():
        _C.set_memory_fraction(index, fraction)
    else:
        _target.attribute("set_per_process_memory_fraction", _OWN)(fraction, index)


def get_per_process_memory_fraction(device: Device = None) -> float:
    """The share, 0.0 to 1.0, of a device's total memory that this process may reserve.

    Raises:
        NotImplementedError: the backend has no such limit.
    """
    _lazy_init()
    index = _existing_index(device)
    if _target.on_host():
        return _C.memory_fraction(index)
    return float(_target.attribute("get_per_process_memory_fraction", _OWN)(index))


def list_gpu_processes(device: Device = None) -> str:
    """The processes that use a device and how much memory each has, for reading.

    On host memory a device belongs to one process: this one.
    """
    index = _existing_index(device)
    if not _target.on_host():
        return str(_target.attribute("list_gpu_processes", _OWN)(index))
    mebibytes = memory_reserved(index) / 2**20
    uses = f"process {os.getpid():>10d} uses {mebibytes:>12.3f} MB of device memory"
    return f"{DEVICE_TYPE}:{index}\n" + (uses if mebibytes else "no processes are running")
