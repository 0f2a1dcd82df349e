"""Owns: what Inductor keeps for CUDA by name, for a flagos whose target is like CUDA.

Reason: as in triton_inductor.py, whose second part this is. Each function is one adaptation;
`FOR_CUDA_LIKE` has them in order. Dated 2026-11, torch 2.11 to 2.14. Held by
tests/compile/test_triton_contracts.py.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol

import torch

__all__ = ["FOR_CUDA_LIKE"]

FLAGOS = "flagos"


class Device(Protocol):
    """What is asked of the device."""

    def current_device(self) -> int: ...

    def properties(self) -> Any: ...


def _module(name: str) -> Any:
    return importlib.import_module(f"torch._inductor.{name}")


def template_heuristics(device: Device) -> None:
    """Configurations of GEMM and attention templates are registered by device name."""
    _module("template_heuristics")
    registry = _module("template_heuristics.registry")
    known = registry._TEMPLATE_HEURISTIC_REGISTRY
    for (template, name, operator), heuristic in list(known.items()):
        if name == "cuda":
            known.setdefault((template, FLAGOS, operator), heuristic)
    registry._HEURISTIC_CACHE.clear()


def configurations(device: Device) -> None:
    """So are those of convolutions and FlexAttention."""
    choices = _module("choices").InductorChoices
    find = choices.get_config_heuristics

    @functools.wraps(find)
    def get_config_heuristics(self: Any, device_type: str | None = "cuda") -> Any:
        return find(self, "cuda" if device_type == FLAGOS else device_type)

    choices.get_config_heuristics = get_config_heuristics


def padding(device: Device) -> None:
    """Matrices are padded for tensor cores where tensors say that they are CUDA's."""
    module = _module("fx_passes.pad_mm")
    check = module.check_device

    @functools.wraps(check)
    def check_device(a: torch.Tensor, b: torch.Tensor) -> bool:
        return check(a, b) or a.device.type == b.device.type == FLAGOS

    module.check_device = check_device


def online_softmax(device: Device) -> None:
    """A softmax in one pass, for two devices by name."""
    module = _module("fx_passes.post_grad")
    check = module.prepare_softmax_extra_check

    @functools.wraps(check)
    def prepare_softmax_extra_check(match: Any) -> bool:
        if match.kwargs["x"].meta["val"].device.type == FLAGOS:
            return bool(module.config.online_softmax)
        return bool(check(match))

    module.prepare_softmax_extra_check = prepare_softmax_extra_check


def mixed_reductions(device: Device) -> None:
    """Reductions over different dimensions of one tensor are fused, for two devices by name."""
    module = _module("scheduler")
    check = getattr(module, "_is_gpu_triton_backend", None)
    if check is None:
        return  # before torch 2.13 the names stand inside larger functions

    @functools.wraps(check)
    def is_gpu_triton_backend(one: Any, two: Any) -> bool:
        devices = [node.get_device() for node in (one, two)]
        if all(found is not None and found.type == FLAGOS for found in devices):
            return True
        return bool(check(one, two))

    module._is_gpu_triton_backend = is_gpu_triton_backend


def asked_of_cuda(device: Device) -> None:
    """Heuristics ask torch.cuda for capability, processors and shared memory. Where there is no
    CUDA device, these modules see a `torch` in which flagos answers."""
    if torch.cuda.is_available():
        return
    cuda = _Answers(torch.cuda, device)
    seen = _Torch("torch")
    seen.cuda = cuda
    for name in ("template_heuristics.triton", "kernel.flex.flex_decoding", "kernel.mm"):
        module = _module(name)
        if vars(module).get("torch") is torch:
            module.torch = seen
    utils = _module("utils")
    utils.get_max_num_sms = lambda: int(device.properties().multi_processor_count)


class _Torch(ModuleType):
    cuda: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


class _Answers:
    def __init__(self, cuda: ModuleType, device: Device) -> None:
        self._cuda = cuda
        self._device = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cuda, name)

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return self._device.current_device()

    def get_device_properties(self, device: Any = None) -> Any:
        return self._device.properties()

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        found = self._device.properties()
        return (found.major, found.minor)


FOR_CUDA_LIKE: tuple[Callable[[Device], None], ...] = (
    template_heuristics,
    configurations,
    padding,
    online_softmax,
    mixed_reductions,
    asked_of_cuda,
)
