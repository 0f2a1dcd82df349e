"""Owns: private memory pools, which only a backend with a module of its own can have."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from torch_fl.flagos import _target
from torch_fl.flagos.devices import _existing_index, _lazy_init

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.types import Device

__all__ = ["MemPool", "use_mem_pool"]

_HOST = (
    "a device of the host backend has one pool. There are no graphs and no foreign allocators here "
    "that would need another: leave it out."
)


class MemPool:
    """A pool of device memory apart from the others; calling this makes the backend's own object.

    Args:
        allocator: where the pool takes memory from; the backend's allocator by default.
        use_on_oom: let other requests have the pool's memory when there is no other.
        no_split: give each request a segment of its own.

    Raises:
        NotImplementedError: the backend has none; always on the host.
    """

    def __new__(
        cls, allocator: object = None, use_on_oom: bool = False, no_split: bool = False
    ) -> Any:
        _lazy_init()
        make = _target.attribute("MemPool", _HOST)
        return make(allocator, use_on_oom=use_on_oom, no_split=no_split)


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: Device = None) -> Iterator[None]:
    """Context in which this thread's requests on a device are served from `pool`.

    Raises:
        NotImplementedError: the backend has no pools; always on the host.
    """
    _lazy_init()
    with _target.attribute("use_mem_pool", _HOST)(pool, _existing_index(device)):
        yield
