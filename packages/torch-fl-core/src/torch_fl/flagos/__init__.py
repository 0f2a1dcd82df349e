"""Owns: the names of `torch.flagos`, the module through which PyTorch and users drive the device.

It offers what `torch.cuda` offers. What has no meaning on a backend raises NotImplementedError that
says why; docs/device-module.md has the list.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from torch import AcceleratorError, OutOfMemoryError

from torch_fl.flagos import (
    _target,
    amp,
    graphs,
    memory,
    random,
    sparse,
    streams,
)
from torch_fl.flagos.amp import (
    get_amp_supported_dtype,
    is_bf16_supported,
)
from torch_fl.flagos.devices import (
    DEVICE_TYPE,
    _exchange_device,
    _get_device_index,
    _is_in_bad_fork,
    _lazy_init,
    _maybe_exchange_device,
    current_device,
    device,
    device_count,
    device_of,
    init,
    is_available,
    is_initialized,
    set_device,
    synchronize,
)
from torch_fl.flagos.graphs import (
    CUDAGraph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    make_graphed_callables,
)
from torch_fl.flagos.legacy import (
    BFloat16Storage,
    BFloat16Tensor,
    BoolStorage,
    BoolTensor,
    ByteStorage,
    ByteTensor,
    CharStorage,
    CharTensor,
    ComplexDoubleStorage,
    ComplexFloatStorage,
    DoubleStorage,
    DoubleTensor,
    FloatStorage,
    FloatTensor,
    HalfStorage,
    HalfTensor,
    IntStorage,
    IntTensor,
    LongStorage,
    LongTensor,
    ShortStorage,
    ShortTensor,
)
from torch_fl.flagos.libraries import (
    _sleep,
    check_error,
    cudart,
    current_blas_handle,
    current_solver_handle,
    get_sync_debug_mode,
    ipc_collect,
    set_sync_debug_mode,
)
from torch_fl.flagos.memory import (
    CUDAPluggableAllocator,
    MemPool,
    caching_allocator_alloc,
    caching_allocator_delete,
    caching_allocator_disabled,
    caching_allocator_enable,
    change_current_allocator,
    device_memory_used,
    empty_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    list_gpu_processes,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
    use_mem_pool,
)
from torch_fl.flagos.properties import (
    DeviceProperties,
    can_device_access_peer,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    get_gencode_flags,
    is_tf32_supported,
)
from torch_fl.flagos.random import (
    _get_generator,
    default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_fl.flagos.sensors import (
    clock_rate,
    memory_usage,
    power_draw,
    temperature,
    utilization,
)
from torch_fl.flagos.streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    get_stream_from_external,
    set_stream,
    stream,
)

__all__ = [
    "AcceleratorError",
    "BFloat16Storage",
    "BFloat16Tensor",
    "BoolStorage",
    "BoolTensor",
    "ByteStorage",
    "ByteTensor",
    "CUDAGraph",
    "CUDAPluggableAllocator",
    "CharStorage",
    "CharTensor",
    "ComplexDoubleStorage",
    "ComplexFloatStorage",
    "DeviceProperties",
    "DoubleStorage",
    "DoubleTensor",
    "Event",
    "ExternalStream",
    "FloatStorage",
    "FloatTensor",
    "HalfStorage",
    "HalfTensor",
    "IntStorage",
    "IntTensor",
    "LongStorage",
    "LongTensor",
    "MemPool",
    "OutOfMemoryError",
    "ShortStorage",
    "ShortTensor",
    "Stream",
    "StreamContext",
    "_exchange_device",
    "_get_device_index",
    "_get_generator",
    "_is_in_bad_fork",
    "_lazy_init",
    "_maybe_exchange_device",
    "_sleep",
    "amp",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "can_device_access_peer",
    "change_current_allocator",
    "check_error",
    "clock_rate",
    "cudart",
    "current_blas_handle",
    "current_device",
    "current_solver_handle",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_memory_used",
    "device_of",
    "empty_cache",
    "get_allocator_backend",
    "get_amp_supported_dtype",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_gencode_flags",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "get_stream_from_external",
    "get_sync_debug_mode",
    "graph",
    "graph_pool_handle",
    "graphs",
    "has_half",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "is_tf32_supported",
    "list_gpu_processes",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "memory_usage",
    "power_draw",
    "random",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "set_sync_debug_mode",
    "sparse",
    "stream",
    "streams",
    "synchronize",
    "temperature",
    "use_mem_pool",
    "utilization",
]

has_half = True

# `import torch.flagos.memory` must give the module that is loaded already. Without this Python
# would load its file a second time under that name, with state of its own.
_NAME = f"torch.{DEVICE_TYPE}"
for _name, _module in list(sys.modules.items()):
    if _name.startswith(f"{__name__}."):
        sys.modules[_NAME + _name.removeprefix(__name__)] = _module
del _name, _module


def __getattr__(name: str) -> Any:
    # Activation checkpointing reads this flag to decide whether there are random states to keep;
    # it must be the state of now, so it cannot be a variable here.
    if name == "_initialized":
        return is_initialized()
    if name == "has_magma":
        return bool(_target.find("has_magma")) if not _target.on_host() else False
    # A whole module of the backend's own, such as one for marks in its profiler, takes no devices
    # and no tensors that would need translating.
    found = None if name.startswith("_") or _target.on_host() else _target.find(name)
    if isinstance(found, ModuleType):
        return found
    raise AttributeError(f"module {_NAME!r} has no attribute {name!r}")
