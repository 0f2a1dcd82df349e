"""Owns: a module such as a plugin names for its device: it does nothing, and remembers what it was
asked. Its devices and streams are the pretend device's.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

NAME = "fake_target"
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

# What each function answers.
_ANSWERS: dict[str, object] = {
    "can_device_access_peer": True,
    "caching_allocator_enable": None,
    "change_current_allocator": None,
    "check_error": None,
    "clock_rate": 1500,
    "cudart": "the runtime",
    "current_blas_handle": 0xB1A5,
    "current_solver_handle": 0x501F,
    "get_allocator_backend": "asynchronous",
    "get_arch_list": ["arch_1", "arch_2"],
    "get_gencode_flags": "-arch 1",
    "get_per_process_memory_fraction": 0.25,
    "get_sync_debug_mode": 1,
    "graph_pool_handle": (0, 7),
    "ipc_collect": None,
    "is_current_stream_capturing": True,
    "is_tf32_supported": True,
    "list_gpu_processes": "nobody",
    "make_graphed_callables": "graphed",
    "memory_snapshot": ["segment"],
    "memory_usage": 12,
    "power_draw": 70_000,
    "set_per_process_memory_fraction": None,
    "set_sync_debug_mode": None,
    "temperature": 41,
    "utilization": 88,
    "_sleep": None,
}


def _function(name: str, answer: object) -> Any:
    def function(*args: Any, **kwargs: Any) -> object:
        CALLS.append((name, args, kwargs))
        return answer

    return function


def _maker(name: str) -> type:
    def make(_: object, *args: Any, **kwargs: Any) -> None:
        CALLS.append((name, args, kwargs))

    return type(name, (), {"__init__": make})


def _context(name: str) -> Any:
    @contextlib.contextmanager
    def context(*args: Any, **kwargs: Any) -> Iterator[None]:
        CALLS.append((name, args, kwargs))
        yield
        CALLS.append((f"end of {name}", (), {}))

    return context


class Properties:
    """What it says of a device."""

    name = "Pretend 9000"
    total_memory = 123 << 20
    multi_processor_count = 42
    major, minor = 9, 1
    warp_size = 64
    shared_memory_per_block = 4096

    def __init__(self, index: int) -> None:
        self.uuid = index

    def method(self) -> None:
        """Is no property."""


class Stream(torch.Stream):
    """A stream of the target's type."""

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, -5


class ExternalStream:
    """A stream by its native handle, with an id of its own."""

    def __init__(self, stream_ptr: int, device: int) -> None:
        CALLS.append(("ExternalStream", (stream_ptr,), {"device": device}))
        self.stream_id = stream_ptr


def install(device_type: str) -> types.ModuleType:
    """Makes the chosen plugin name this module, whose device is `device_type`."""
    from torch_fl.plugins.loaded import LoadedPlugin

    module: Any = types.ModuleType(NAME)
    module.memory = types.ModuleType(f"{NAME}.memory")
    for name, answer in _ANSWERS.items():
        setattr(module, name, _function(name, answer))
    for name in ("CUDAGraph", "MemPool", "graph"):
        setattr(module, name, _maker(name))
    for name in ("use_mem_pool", "caching_allocator_disabled"):
        setattr(module, name, _context(name))
    module.memory.CUDAPluggableAllocator = _maker("CUDAPluggableAllocator")
    module.memory.change_current_allocator = module.change_current_allocator
    module.memory._record_memory_history = _function("_record_memory_history", None)
    module.memory._snapshot = _function("_snapshot", {"segments": [], "device_traces": []})
    module.get_device_properties = Properties
    module.Stream, module.ExternalStream = Stream, ExternalStream
    module.current_stream = lambda index: torch.Stream(torch.device(device_type, index))
    module.marks = types.ModuleType(f"{NAME}.marks")
    module.has_magma = True
    sys.modules[NAME] = module
    LoadedPlugin.target_module = lambda self: NAME  # type: ignore[method-assign]
    return module


def calls() -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """What was asked since the last time."""
    asked = CALLS[:]
    CALLS.clear()
    return asked
