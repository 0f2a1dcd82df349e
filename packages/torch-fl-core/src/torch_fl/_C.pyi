"""Types of the C++ extension: the devices, memory, randomness and observation of the runtime.

Device arguments are indices that exist; the Python callers check them and turn a wrong one into an
error that names the device count. A negative index is accepted only where said.
"""

# ruff: noqa: N999  (the name that PyTorch extensions have)
from typing import TypedDict

import torch
from typing_extensions import NotRequired

class _Properties(TypedDict):
    name: str
    total_memory: int
    multi_processor_count: int
    major: int
    minor: int
    uuid: NotRequired[str]
    is_integrated: NotRequired[bool]

def activate_host(device_count: int, memory_limit: int, guard: bool, /) -> None:
    """Makes flagos run on host memory: devices, the limit of each in bytes, page protection."""

def activate_delegate(device_type: str, /) -> None:
    """Makes flagos run on another device of this PyTorch, such as "cuda"."""

def device_count() -> int:
    """Number of devices. Never raises and starts nothing: 0 when there is none."""

def current_device() -> int:
    """Index of the calling thread's current device."""

def set_device(device: int, /) -> None:
    """Makes `device` the calling thread's current device."""

def exchange_device(device: int, /) -> int:
    """Makes `device` current and returns the index that was current before."""

def maybe_exchange_device(device: int, /) -> int:
    """As `exchange_device`; a negative index changes nothing and returns -1."""

def synchronize(device: int, /) -> None:
    """Waits for all work on all streams of `device`."""

def initialize() -> None:
    """Starts the runtime. Idempotent and thread-safe; RuntimeError when it cannot start."""

def is_initialized() -> bool:
    """Whether the runtime was started in this process or in the parent that forked it."""

def is_in_bad_fork() -> bool:
    """Whether this process was forked after `register_fork_handler`: its runtime is unusable."""

def register_fork_handler() -> None:
    """From now on a forked child is marked, see `is_in_bad_fork`. To be called once."""

def device_properties(device: int, /) -> _Properties:
    """Facts about `device`; total_memory is in bytes, major and minor are its version numbers.

    `is_integrated` says that device memory is the host's own memory (absent: it is not).
    """

def default_generator(device: int, /) -> torch.Generator:
    """The generator that random operators on `device` use when none is given."""

def memory_info(device: int, /) -> tuple[int, int]:
    """(free, total) memory of `device` in bytes."""

def start_observing() -> None:
    """Counts and times every operator call from here on; what was counted before is dropped."""

def stop_observing() -> None:
    """Ends counting. What was counted stays readable until the next `start_observing`."""

def observations() -> list[tuple[str, str, int, int]]:
    """(operator, route, calls, device time in nanoseconds) since `start_observing`.

    One entry for each pair of operator and route that was called at least once, in any order.
    Waits for work whose time is not known yet.
    """
