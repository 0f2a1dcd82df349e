"""Owns: DLPack for flagos tensors: as an external device's, or as the target's, without a copy.

Reason: up to torch 2.15 `Tensor.__dlpack_device__` compares with the literal "privateuse1", which
no renamed device has, so `torch.from_dlpack` refuses flagos tensors. And PyTorch copies whenever
the two device types differ, although a flagos tensor and one of its target may share their memory.
Dated 2026-11, torch 2.11 to 2.15. Held by tests/interop/test_dlpack.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import has_torch_function_unary
from torch.utils import dlpack
from torch.utils.dlpack import DLDeviceType

from torch_fl import _C

__all__ = ["install"]

_FLAGOS = "flagos"
_NO_WAITING = -1  # as a stream: nobody need wait

Place = tuple[Any, int]
"""A device as DLPack names it: device type and index."""


def install(target: str) -> None:
    """Makes DLPack know flagos, which stands on the device type `target`."""
    tensor: Any = torch.Tensor
    tensor.__dlpack_device__ = _placing(tensor.__dlpack_device__)
    tensor.__dlpack__ = _exporting(tensor.__dlpack__, target)
    modules: tuple[Any, ...] = (torch, dlpack)
    importer = _importing(dlpack.from_dlpack, target)
    for module in modules:
        module.from_dlpack = importer


def _is_flagos(tensor: torch.Tensor) -> bool:
    return not has_torch_function_unary(tensor) and tensor.device.type == _FLAGOS


def _same(one: Place | None, other: Place | None) -> bool:
    if one is None or other is None:
        return False
    return (int(one[0]), int(one[1])) == (int(other[0]), int(other[1]))


def _place_of(device: torch.device) -> Place | None:
    """How DLPack names a device; None where it has no name for it."""
    try:
        kind, index = torch._C._torchDeviceToDLDevice(device)
    except (RuntimeError, ValueError, BufferError):
        return None
    return kind, index


def _existing(device: torch.device, target: str) -> torch.device:
    """`device`, with the current one's index where it is the target's and has none."""
    index: int | None = device.index
    if device.type != target or target == "cpu" or index is not None:
        return device
    return torch.device(target, _C.current_device())


def _place_on_target(target: str, index: int) -> Place | None:
    """Where the memory of flagos device `index` is, as the target names it."""
    # (The CPU is one device.)
    return _place_of(torch.device(target) if target == "cpu" else torch.device(target, index))


def _placing(place: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    @functools.wraps(place)
    def placing(self: torch.Tensor) -> Any:
        if _is_flagos(self):
            return DLDeviceType.kDLExtDev, self.device.index
        return place(self)

    return placing


def _exporting(export: Callable[..., Any], target: str) -> Callable[..., Any]:
    @functools.wraps(export)
    def exporting(
        self: torch.Tensor,
        *,
        stream: Any = _NO_WAITING,
        max_version: tuple[int, int] | None = None,
        dl_device: Place | None = None,
        copy: bool | None = None,
    ) -> Any:
        options = {
            "stream": stream,
            "max_version": max_version,
            "dl_device": dl_device,
            "copy": copy,
        }
        if not _is_flagos(self):
            return export(self, **options)
        if self.requires_grad or self.is_conj() or self.layout != torch.strided:
            return export(self, **options)  # which says that this cannot be
        here = _place_on_target(target, self.device.index)
        alias = _C.to_target(self)
        if _same(dl_device, here):
            return export(alias, **options)
        if stream != _NO_WAITING and here is not None:
            # The consumer's stream is one of the target's, which knows how to make it wait.
            export(alias, stream=stream, max_version=max_version)
        return export(self, **{**options, "stream": _NO_WAITING})

    return exporting


def _importing(load: Callable[..., torch.Tensor], target: str) -> Callable[..., torch.Tensor]:
    def as_target(source: Any, device: torch.device, copy: bool | None) -> torch.Tensor | None:
        place = _place_of(device)
        if not _same(place, _place_on_target(target, source.device.index)):
            return None
        capsule = source.__dlpack__(dl_device=place, max_version=(1, 0), copy=copy)
        result: torch.Tensor = torch._C._from_dlpack(capsule)
        return result

    def as_flagos(source: Any, device: torch.device, copy: bool | None) -> torch.Tensor | None:
        wanted = _C.current_device() if device.index is None else device.index
        if not _same(source.__dlpack_device__(), _place_on_target(target, wanted)):
            return None
        return _C.from_target(load(source, copy=copy), wanted)

    @functools.wraps(load)
    def from_dlpack(
        ext_tensor: Any, *, device: Any = None, copy: bool | None = None
    ) -> torch.Tensor:
        if device is not None and hasattr(ext_tensor, "__dlpack__"):
            wanted = _existing(torch.device(device), target)
            result = None
            on_flagos = isinstance(ext_tensor, torch.Tensor) and ext_tensor.device.type == _FLAGOS
            if on_flagos and wanted.type == target:
                result = as_target(ext_tensor, wanted, copy)
            elif not on_flagos and wanted.type == _FLAGOS:
                result = as_flagos(ext_tensor, wanted, copy)
            if result is not None:
                return result
        return load(ext_tensor, device=device, copy=copy)

    return from_dlpack
