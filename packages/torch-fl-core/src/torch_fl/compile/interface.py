"""Owns: flagos as Dynamo's device interface: devices, streams and what they can do."""

from __future__ import annotations

from typing import Any

import torch


def make(base: type) -> type:
    """The interface, a subclass of PyTorch's own."""
    module = torch.get_device_module("flagos")

    class Worker:
        """What compiling processes ask: nothing of theirs may start a device."""

        set_device = staticmethod(_remember)
        current_device = staticmethod(_remembered)
        get_device_properties = staticmethod(module.get_device_properties)

    class FlagosInterface(base):  # type: ignore[misc]
        """torch.flagos, by the names that Dynamo and Inductor ask for."""

        device = module.device
        Event = module.Event
        Stream = module.Stream

        current_device = staticmethod(module.current_device)
        set_device = staticmethod(module.set_device)
        device_count = staticmethod(module.device_count)
        is_available = staticmethod(module.is_available)
        exchange_device = staticmethod(torch._C._accelerator_exchangeDevice)
        maybe_exchange_device = staticmethod(torch._C._accelerator_maybeExchangeDevice)
        stream = staticmethod(module.stream)
        current_stream = staticmethod(module.current_stream)
        set_stream = staticmethod(module.set_stream)
        synchronize = staticmethod(module.synchronize)
        memory_allocated = staticmethod(module.memory_allocated)
        get_device_properties = staticmethod(module.get_device_properties)

        @staticmethod
        def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
            module.set_stream(
                torch.Stream(
                    stream_id=stream_id, device_index=device_index, device_type=device_type
                )
            )

        @staticmethod
        def get_raw_stream(device_idx: int) -> int:
            return int(module.current_stream(device_idx).native_handle)

        @staticmethod
        def get_compute_capability(device: Any = None) -> Any:
            properties = module.get_device_properties(device)
            if hasattr(properties, "major"):
                return properties.major * 10 + properties.minor
            return ""

        @staticmethod
        def is_bf16_supported(including_emulation: bool = False) -> bool:
            return bool(module.is_bf16_supported(including_emulation))

    FlagosInterface.Worker = Worker
    return FlagosInterface


_worker_device = 0


def _remember(device: int) -> None:
    global _worker_device
    _worker_device = device


def _remembered() -> int:
    return _worker_device
