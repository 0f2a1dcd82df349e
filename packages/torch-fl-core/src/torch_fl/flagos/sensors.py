"""Owns: what a device's sensors say. Only the backend's own module can read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch_fl.flagos import _target
from torch_fl.flagos.devices import _existing_index

if TYPE_CHECKING:
    from torch.types import Device

__all__ = ["clock_rate", "memory_usage", "power_draw", "temperature", "utilization"]


def _read(name: str, device: Device) -> int:
    index = _existing_index(device)
    host = (
        "the host backend's devices are this machine's processor, which has no such sensor for a "
        "device. Ask the operating system."
    )
    return int(_target.attribute(name, host)(index))


def utilization(device: Device = None) -> int:
    """Percent of the last sampling period in which a kernel ran; NotImplementedError on the
    host."""
    return _read("utilization", device)


def memory_usage(device: Device = None) -> int:
    """Percent of the last sampling period in which memory was read or written; NotImplementedError
    on the host."""
    return _read("memory_usage", device)


def temperature(device: Device = None) -> int:
    """Degrees Celsius; NotImplementedError on the host."""
    return _read("temperature", device)


def power_draw(device: Device = None) -> int:
    """Milliwatts; NotImplementedError on the host."""
    return _read("power_draw", device)


def clock_rate(device: Device = None) -> int:
    """Megahertz; NotImplementedError on the host."""
    return _read("clock_rate", device)
