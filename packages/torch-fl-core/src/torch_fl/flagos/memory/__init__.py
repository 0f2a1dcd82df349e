"""Owns: the names of `torch.flagos.memory`. All sizes are bytes.

Asking starts nothing: before the first use every figure is 0. Wherever a device is taken: an
index, "flagos:1", torch.device or None for the current one; ValueError for another device type,
RuntimeError for an index that does not exist.
"""

from __future__ import annotations

from torch_fl.flagos.memory.allocator import (
    CUDAPluggableAllocator,
    caching_allocator_alloc,
    caching_allocator_delete,
    caching_allocator_disabled,
    caching_allocator_enable,
    change_current_allocator,
    get_allocator_backend,
)
from torch_fl.flagos.memory.history import (
    _dump_snapshot,
    _record_memory_history,
    _snapshot,
    memory_snapshot,
)
from torch_fl.flagos.memory.limits import (
    device_memory_used,
    empty_cache,
    get_per_process_memory_fraction,
    list_gpu_processes,
    mem_get_info,
    set_per_process_memory_fraction,
)
from torch_fl.flagos.memory.pinned import (
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    reset_accumulated_host_memory_stats,
    reset_peak_host_memory_stats,
)
from torch_fl.flagos.memory.pools import MemPool, use_mem_pool
from torch_fl.flagos.memory.statistics import (
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_stats,
    memory_stats_as_nested_dict,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_memory_stats,
)
from torch_fl.flagos.memory.summary import memory_summary

__all__ = [
    "CUDAPluggableAllocator",
    "MemPool",
    "_dump_snapshot",
    "_record_memory_history",
    "_snapshot",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "change_current_allocator",
    "device_memory_used",
    "empty_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "list_gpu_processes",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "use_mem_pool",
]
