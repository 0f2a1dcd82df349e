"""Owns: flagos as a device that Inductor generates Triton kernels for.

Device state comes from torch.flagos, hardware properties from the plugin's Triton target. Entered
when Inductor or Triton is imported, and only where the plugin asks for it.
"""

from __future__ import annotations

import functools
import logging
import pkgutil
from collections.abc import Callable
from typing import Any

import torch

from torch_fl import flagos
from torch_fl._compat.compiler import (
    triton_backends,
    triton_codegen,
    triton_compile,
    triton_inductor,
)
from torch_fl.compile import interface, policies, target

__all__ = ["Device", "hooks", "is_device", "raw_stream", "settings"]

_log = logging.getLogger("torch_fl.compile")


def is_device() -> bool:
    """Whether flagos is Inductor's Triton device in this process."""
    return target.is_triton_device()


def raw_stream(device_index: int) -> int:
    """The address of the maker's current stream on a device, as kernels are launched on."""
    stream: Any = flagos.current_stream(device_index)
    return int(stream.native_handle)


def settings() -> dict[str, Any]:
    """Inductor's settings for every compilation for this device."""
    profile = target.profile()
    if profile is None:
        return {}
    found: dict[str, Any] = {}
    if profile.compile_threads is not None:
        found["compile_threads"] = profile.compile_threads
    alone = target.is_triton_device()
    if alone or not profile.cudagraphs:
        if torch._inductor.config.triton.cudagraphs:
            _without_graphs(target.by_name())
        found["triton.cudagraphs"] = False
    if alone and not triton_inductor.is_usable(profile.backend):
        found["use_static_cuda_launcher"] = False  # it is PyTorch's own code for its devices
    known = torch._inductor.config.get_config_copy()
    for name in profile.settings.keys() - known.keys():
        _log.warning("%s forces the setting %r, which this Inductor lacks.", target.by_name(), name)
    found |= profile.settings
    return {name: value for name, value in found.items() if name in known}


@functools.cache
def _without_graphs(plugin: str) -> None:
    _log.warning(
        'The plugin %s has no CUDA graphs: mode="reduce-overhead" compiles without them.', plugin
    )


def hooks() -> triton_compile.CompilerHooks | None:
    """What happens to kernels, once Triton is imported; None where the plugin has no Triton target.
    Does what is to be done before Triton makes its driver."""
    found = policies.load(_state())
    if found is None:
        return None
    found.install()
    if target.is_triton_device():
        triton_backends.use_driver(_driver)
    return found


def _state() -> dict[str, Callable[..., Any]]:
    return {
        "current_device": flagos.current_device,
        "set_device": flagos.set_device,
        "device_count": flagos.device_count,
        "raw_stream": _raw_stream(),
        "properties": flagos.get_device_properties,
        "is_available": flagos.is_available,
    }


def _raw_stream() -> Callable[[int], int]:
    profile = target.profile()
    if profile is None or not profile.raw_stream:
        return raw_stream
    found: Callable[[int], int] = pkgutil.resolve_name(profile.raw_stream)
    return found


def _driver() -> Any:
    """The target's driver, made without asking drivers which of them is active, and told which
    device it is on."""
    target.check()
    from triton.backends import backends

    profile = target.profile()
    assert profile is not None
    device = Device()
    state = _state()
    return triton_backends.bind_state(
        backends[profile.key].driver(),
        {
            "get_current_device": state["current_device"],
            "set_current_device": state["set_device"],
            "get_current_stream": state["raw_stream"],
            "get_current_target": device.triton_target,
            "get_device_interface": lambda: flagos,
            "get_active_torch_device": lambda: torch.device("flagos", flagos.current_device()),
            "get_empty_cache_for_benchmark": _empty_cache,
        },
    )


def _empty_cache() -> torch.Tensor:
    """What Triton's own benchmarks write between two runs: more than a cache holds."""
    return torch.empty(2**28, dtype=torch.int8, device="flagos")


class Device:
    """flagos, as triton_inductor needs it."""

    def __init__(self) -> None:
        from torch._dynamo.device_interface import DeviceInterface

        profile = target.profile()
        assert profile is not None
        self.backend = profile.backend
        self.cuda_like = profile.cuda_like
        self.interface: Any = _interface(interface.make(DeviceInterface))
        self.scheduling = triton_codegen.scheduling()
        self.wrapper = triton_codegen.wrapper()
        self.op_overrides = triton_codegen.op_overrides(
            profile.raw_stream or f"{__name__}:raw_stream"
        )

    def device_count(self) -> int:
        return flagos.device_count()

    def current_device(self) -> int:
        return flagos.current_device()

    def properties(self) -> Any:
        return target.properties(flagos.get_device_properties())

    def triton_target(self) -> Any:
        own = flagos.get_device_properties()
        return triton_compile.target(self.backend, target.arch(own), target.warp_size(own))


def _interface(base: Any) -> type:
    """flagos as Dynamo knows it, with the target's hardware."""

    def get_device_properties(device: Any = None) -> Any:
        return target.properties(flagos.get_device_properties(device))

    class Worker(base.Worker):  # type: ignore[misc]
        pass

    class TritonInterface(base):  # type: ignore[misc]
        get_raw_stream = staticmethod(_raw_stream())

        @staticmethod
        def get_compute_capability(device: Any = None) -> int | str:
            return target.arch(flagos.get_device_properties(device))

        @staticmethod
        def is_triton_capable(device: Any = None) -> bool:
            return True

        @staticmethod
        def raise_if_triton_unavailable(device: Any = None) -> None:
            target.check()

        @staticmethod
        def is_gpu() -> bool:
            return True

    Worker.get_device_properties = staticmethod(get_device_properties)
    TritonInterface.Worker = Worker
    TritonInterface.get_device_properties = staticmethod(get_device_properties)
    return TritonInterface
