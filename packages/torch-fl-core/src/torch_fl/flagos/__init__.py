"""Owns: the names of `torch.flagos`, the module through which PyTorch and users drive the device.

It offers what `torch.cuda` offers where that has a meaning for any accelerator.
"""

from __future__ import annotations

import sys

from torch import OutOfMemoryError

from torch_fl.flagos import amp, devices, memory, random, streams
from torch_fl.flagos.amp import get_amp_supported_dtype, is_bf16_supported
from torch_fl.flagos.devices import (
    DEVICE_TYPE,
    DeviceProperties,
    _exchange_device,
    _get_device_index,
    _is_in_bad_fork,
    _lazy_init,
    _maybe_exchange_device,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_initialized,
    set_device,
    synchronize,
)
from torch_fl.flagos.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
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
from torch_fl.flagos.streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
)

__all__ = [
    "DeviceProperties",
    "Event",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "_exchange_device",
    "_get_device_index",
    "_get_generator",
    "_is_in_bad_fork",
    "_lazy_init",
    "_maybe_exchange_device",
    "amp",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]

# `import torch.flagos.memory` must give the module that is loaded already. Without this Python
# would load its file a second time under that name, with state of its own.
for _module in (amp, devices, memory, random, streams):
    sys.modules[f"torch.{DEVICE_TYPE}.{_module.__name__.rpartition('.')[2]}"] = _module
del _module


def __getattr__(name: str) -> bool:
    # Activation checkpointing reads this flag to decide whether there are random states to keep;
    # it must be the state of now, so it cannot be a variable here.
    if name == "_initialized":
        return is_initialized()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
