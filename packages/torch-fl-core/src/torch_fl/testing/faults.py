"""Owns: making device allocations fail on purpose, to test what happens when memory runs out.

    with faults.failing_allocation(3):
        step()  # raises torch.OutOfMemoryError at the third allocation

Counted is what flagos allocates itself (factories, copies, resizing) on every backend and, where
the target's kernels take their memory through PyTorch's plain allocator interface, as on the host
backend, also what these allocate: results, temporary memory, storages that they resize. A target
with a caching allocator of its own hides the latter. Pinned memory is no device memory.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from torch_fl import _C
from torch_fl.flagos.devices import _existing_index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.types import Device

__all__ = ["Allocations", "counted_allocations", "failing_allocation"]

_ALL = (1 << 63) - 1


class Allocations:
    """What became of the allocations of a context, also while it is open."""

    _ended: tuple[int, int] | None = None

    def _counts(self) -> tuple[int, int]:
        return _C.failing_allocations() if self._ended is None else self._ended

    @property
    def seen(self) -> int:
        """How many there were; empty tensors allocate nothing."""
        return self._counts()[0]

    @property
    def failed(self) -> int:
        """How many of them failed."""
        return self._counts()[1]


@contextlib.contextmanager
def failing_allocation(
    number: int,
    *,
    times: int | None = 1,
    retry_succeeds: bool = False,
    device: Device = None,
) -> Iterator[Allocations]:
    """Lets a device allocation inside the context fail, in whatever thread it is made.

    It fails as one does for which there is no memory: the cache is given back, and unless a retry
    succeeds then, torch.OutOfMemoryError is raised with the sizes and the device.

    Args:
        number: which allocation fails, counted from 1 since the context was entered.
        times: how many fail one after another, from that one on; None for all.
        retry_succeeds: whether the memory can be had once the cache is given back; then nothing is
            raised.
        device: the device whose allocations count; all devices by default.

    Raises:
        ValueError: `number` or `times` below 1, or another type of device.
        RuntimeError: no such device, or another such context is open: there is one in a process.
    """
    if number < 1 or (times is not None and times < 1):
        raise ValueError(f"Allocations are counted from 1, but got {number=}, {times=}.")
    index = -1 if device is None else _existing_index(device)
    _C.start_failing_allocations(number, _ALL if times is None else times, retry_succeeds, index)
    allocations = Allocations()
    try:
        yield allocations
    finally:
        allocations._ended = _C.stop_failing_allocations()


@contextlib.contextmanager
def counted_allocations(device: Device = None) -> Iterator[Allocations]:
    """Counts device allocations inside the context as `failing_allocation` does; none fails."""
    with failing_allocation(_ALL, device=device) as allocations:
        yield allocations
