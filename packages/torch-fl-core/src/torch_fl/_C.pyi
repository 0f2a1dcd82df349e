"""Types of the C++ extension: the devices, memory, randomness and observation of the runtime.

Device arguments are indices that exist; the Python callers check them and turn a wrong one into an
error that names the device count. A negative index is accepted only where said.
"""

# ruff: noqa: N999  (the name that PyTorch extensions have)
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypedDict

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

def activate_delegate(device_type: str, foreach_takes_any_device: bool, /) -> None:
    """Makes flagos run on another device of this PyTorch, such as "cuda"."""

def activate_unavailable(reason: str, /) -> None:
    """Makes flagos a device that is not there: whatever needs it raises RuntimeError(reason)."""

def stream_priority(stream_id: int, /) -> int:
    """Of a stream that the runtime makes itself; 0 where streams are the target's."""

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

def target_generator(generator: torch.Generator, /) -> torch.Generator:
    """The target's generator behind one of flagos, whose state it is."""

class CompiledRegion:
    """Compiled code of the target's tensors, called with a list of arguments, which it empties."""

    _boxed_call: bool
    """How compilers of PyTorch know that a callable takes one list."""

    def __init__(
        self, call: Callable[..., Any], devices: Sequence[int], written: Sequence[int] = ..., /
    ) -> None:
        """`devices`: for each result the index of its flagos device, -1 for what is none of
        flagos'. `written`: arguments whose storage the code may replace."""

    def __call__(self, arguments: list[Any], /) -> list[Any]: ...

def memory_info(device: int, /) -> tuple[int, int]:
    """(free, total) memory of `device` in bytes."""

def refuse_device(index: int, /) -> NoReturn:
    """Raises RuntimeError for a device that does not exist, naming those that do."""

# -- memory beyond tensors; functions marked "host" raise NotImplementedError elsewhere

def set_memory_fraction(device: int, fraction: float, /) -> None:
    """Host: the share, 0 to 1, of `device`'s memory that the process may reserve."""

def memory_fraction(device: int, /) -> float:
    """Host: what `set_memory_fraction` set; 1 at first."""

def set_caching(on: bool, /) -> None:
    """Host: whether freed blocks of all devices are kept for the next request."""

def is_caching() -> bool:
    """Host: what `set_caching` set; True at first."""

def start_history(
    events: bool,
    stacks: int,
    cpp: bool,
    max_entries: int,
    clear: bool,
    skipped: Sequence[str],
    /,
) -> None:
    """Host: records events, or stacks of memory in use alone, on all devices.

    `stacks`: 0 none, 1 of memory in use, 2 of allocations, 3 of frees too; `cpp` with C++ frames.
    """

def stop_history() -> None:
    """Host: stops recording and forgets everything."""

def memory_snapshot(with_events: bool, /) -> dict[str, Any]:
    """Host: segments and events in the format of PyTorch's memory viewer."""

def raw_allocate(size: int, device: int, /) -> int:
    """Address of `size` bytes of `device` for work on its current stream."""

def raw_free(address: int, /) -> None:
    """Gives memory of `raw_allocate` back; ValueError for any other address."""

def pinned_stats() -> dict[str, Any]:
    """Statistics of pinned host memory: counts, and tallies as dictionaries."""

def reset_accumulated_pinned_stats() -> None:
    """Sets the sums of `pinned_stats` to 0."""

def reset_peak_pinned_stats() -> None:
    """Sets the peaks of `pinned_stats` to the current values."""

# -- memory that others have too

def to_target(tensor: torch.Tensor, /) -> torch.Tensor:
    """A tensor of the target over the memory of a strided flagos tensor, without autograd.

    NotImplementedError for other layouts.
    """

def from_target(tensor: torch.Tensor, device: int, /) -> torch.Tensor:
    """A flagos tensor over the memory of a strided tensor of the target, without autograd.

    `device` is whose it is, where the target's tensors have no index. Errors as `to_target`.
    """

def replace_memory(tensor: torch.Tensor, memory: torch.Tensor, /) -> None:
    """Puts the memory of `memory`'s storage in the place of that of `tensor`'s, views included.

    `memory` is a tensor of the target, is left without memory, and must be of the same size in
    bytes (ValueError). Afterwards `tensor`'s storage cannot be resized.
    """

# -- routes

# Route, label, and the operator that carries the kernel.
_Step = tuple[str, str, str | None]
# The chains, and which of them each dtype takes; dtypes that are not named take the first.
_Plan = tuple[Sequence[Sequence[_Step]], Sequence[tuple[torch.dtype, int]]]

class Scope:
    """Plans that hold for the calls of one thread."""

def operators() -> list[tuple[str, str, bool, bool, bool, bool, bool]]:
    """Every operator of this process that has a schema.

    Name, own route, then whether it is fixed, made of other operators (CompositeImplicitAutograd),
    has a kernel on the target, is composed by PyTorch, and can run on the CPU.
    """

def set_plan(operator: str, plan: _Plan | None, /) -> None:
    """Puts a plan in force for all threads; None is the operator's own route.

    ValueError for an operator that cannot be routed.
    """

def open_scope(plans: Sequence[tuple[str, _Plan | None]], /) -> Scope:
    """Puts plans in force for the calling thread and the threads that work for it."""

def close_scope(scope: Scope, /) -> None:
    """Ends a scope, also for the threads that it has followed into."""

def refuse_calls(reason: str | None, /) -> None:
    """From now on every call on flagos raises RuntimeError(reason), until that is None."""

def refuse_call() -> None:
    """Says that the kernel being run by this thread does not support the call; it raises next."""

def set_logging(on: bool, /) -> None:
    """Prints each call and its route on standard error."""

def set_breadcrumbs(on: bool, /) -> None:
    """Errors that the device reports late name the operators that were called last."""

def last_calls(count: int, /) -> list[str]:
    """While breadcrumbs are on: "aten::mm -> boxing", newest first."""

def set_fallback_rules(forbidden: bool, logged: bool, /) -> None:
    """Whether the cpu route is an error, and whether it prints a line."""

def start_counting() -> None:
    """Counts and times every operator call from here on."""

def stop_counting() -> None:
    """Ends counting. What was counted stays readable."""

def observations() -> list[tuple[str, str, int, int]]:
    """(operator, route, calls, device time in nanoseconds), of all calls that were counted.

    One entry for each pair of operator and route that was called at least once, in any order.
    Waits for work whose time is not known yet. Counts only ever grow.
    """

def fallbacks() -> list[tuple[str, int, int]]:
    """(operator, calls, bytes moved) of the cpu route since activation."""

# -- testing

def start_failing_allocations(first: int, times: int, recovers: bool, device: int, /) -> None:
    """From the allocation `first` on (from 1) lets `times` fail; see torch_fl.testing.faults.

    A negative device stands for all. RuntimeError when allocations are already made to fail.
    """

def stop_failing_allocations() -> tuple[int, int]:
    """Ends that and returns (allocations seen, allocations that failed)."""

def failing_allocations() -> tuple[int, int]:
    """(allocations seen, allocations that failed) since the start."""
