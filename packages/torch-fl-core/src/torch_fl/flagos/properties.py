"""Owns: what is known of a device of `torch.flagos`."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from torch_fl import _C
from torch_fl.flagos import _target
from torch_fl.flagos.devices import _checked, _existing_index, _get_device_index, _lazy_init

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.types import Device

__all__ = [
    "DeviceProperties",
    "can_device_access_peer",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_gencode_flags",
    "is_tf32_supported",
]


@dataclass(frozen=True)
class DeviceProperties:
    """What is known of a device; `None` where its runtime does not say."""

    name: str
    total_memory: int
    """Memory in bytes."""
    multi_processor_count: int
    """Units that run kernels in parallel: processor cores on the host."""
    major: int
    minor: int
    uuid: str | None = None
    is_integrated: bool = False
    """Device memory is the host's own memory."""
    warp_size: int | None = None
    """Threads that run in lockstep."""
    max_threads_per_multi_processor: int | None = None
    regs_per_multiprocessor: int | None = None
    """Registers of 32 bits."""
    extra: Mapping[str, object] = field(default_factory=dict, hash=False)
    """What the runtime says beyond the fields above, under its own names."""


def _said_by_target(index: int) -> dict[str, Any]:
    ask = None if _target.on_host() else _target.find("get_device_properties")
    if ask is None:
        return {}
    said = ask(index)
    named = {name: getattr(said, name) for name in dir(said) if not name.startswith("_")}
    if "uuid" in named:
        named["uuid"] = str(named["uuid"])
    return {name: value for name, value in named.items() if not callable(value)}


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Properties of a device, the current one by default.

    Raises:
        ValueError: another device type.
        RuntimeError: no such device.
    """
    _lazy_init()
    index = _existing_index(device)
    said: dict[str, Any] = {**_C.device_properties(index), **_said_by_target(index)}
    known = {f.name: said.pop(f.name) for f in fields(DeviceProperties) if f.name in said}
    return DeviceProperties(**known, extra=said)


def get_device_name(device: Device = None) -> str:
    """Name of a device, the current one by default; errors as `get_device_properties`."""
    return get_device_properties(device).name


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """(major, minor) version of a device; errors as `get_device_properties`."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """Whether kernels on `device` can read the memory of `peer_device`, another device.

    True only where it is known: both devices use the host's memory, or the backend says so. Copies
    between devices work in any case.

    Raises:
        ValueError: another device type, or no index for `peer_device`.
        RuntimeError: no such device.
    """
    _lazy_init()
    here, there = _existing_index(device), _checked(_get_device_index(peer_device))
    ask = None if _target.on_host() else _target.find("can_device_access_peer")
    if ask is not None:
        return bool(here != there and ask(here, there))
    shared = all(get_device_properties(index).is_integrated for index in (here, there))
    return here != there and shared


def get_arch_list() -> list[str]:
    """The architectures that this PyTorch has kernels for, as the backend names them."""
    ask = None if _target.on_host() else _target.find("get_arch_list")
    return list(ask()) if ask else []


def get_gencode_flags() -> str:
    """The compiler's flags for the architectures of `get_arch_list`; empty where there are none."""
    ask = None if _target.on_host() else _target.find("get_gencode_flags")
    return str(ask()) if ask else ""


def is_tf32_supported() -> bool:
    """Whether matrix products of float32 may be computed with TensorFloat-32; never on the host."""
    ask = None if _target.on_host() else _target.find("is_tf32_supported")
    return bool(ask and ask())
