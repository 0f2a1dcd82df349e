"""Owns: the allocator itself: memory without a tensor, its cache, exchanging it for another."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from torch_fl import _C
from torch_fl.flagos import _target
from torch_fl.flagos.devices import _existing_index, _lazy_init, is_initialized
from torch_fl.flagos.streams import get_stream_from_external
from torch_fl.flagos.streams import stream as stream_context

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.types import Device

__all__ = [
    "CUDAPluggableAllocator",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "change_current_allocator",
    "get_allocator_backend",
]

_OWN = "the core answers this itself."  # never shown: both ways are taken before
_FIXED = (
    "the host backend's allocator cannot be exchanged: page protection, limits and statistics are "
    "its work. Its size is set with FLAGOS_HOST_MEMORY."
)


def caching_allocator_alloc(
    size: int, device: Device = None, stream: torch.Stream | int | None = None
) -> int:
    """Device memory without a tensor, for other libraries. Starts the runtime.

    Args:
        size: bytes; 0 gives the address 0.
        device: the device, the current one by default.
        stream: the stream that will use the memory, the device's current one by default; a number
            is a native handle.

    Returns:
        The address, to be given back with `caching_allocator_delete`.

    Raises:
        torch.OutOfMemoryError: there is not that much.
    """
    _lazy_init()
    index = _existing_index(device)
    if isinstance(stream, int):
        stream = get_stream_from_external(stream, index)
    elif stream is not None and not isinstance(stream, torch.Stream):
        raise TypeError(
            f"stream must be a torch.Stream or a native handle, but is a {type(stream).__name__}"
        )
    with stream_context(stream):
        return _C.raw_allocate(size, index)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Give memory from `caching_allocator_alloc` back.

    Raises:
        ValueError: there is no such memory at that address, or no longer.
    """
    _C.raw_free(mem_ptr)


def caching_allocator_enable(value: bool = True) -> None:
    """Whether freed memory is kept for the next request, as it is at first.

    Without the cache each block goes back to the system: slow, and right for finding who holds
    memory. Before the first use this does nothing.
    """
    if not is_initialized():
        return
    if _target.on_host():
        _C.set_caching(value)
    else:
        _target.attribute("caching_allocator_enable", _OWN)(value)


@contextlib.contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """Context without the cache, see `caching_allocator_enable`. Starts the runtime."""
    _lazy_init()
    if not _target.on_host():
        with _target.attribute("caching_allocator_disabled", _OWN)():
            yield
        return
    before = _C.is_caching()
    _C.set_caching(False)
    try:
        yield
    finally:
        _C.set_caching(before)


def get_allocator_backend() -> str:
    """The allocator that serves the device, "native" for PyTorch's own kind."""
    ask = None if _target.on_host() else _target.find("get_allocator_backend")
    return str(ask()) if ask else "native"


class CUDAPluggableAllocator:
    """An allocator from a library of the user's; calling this makes the backend's own object.

    Args:
        path_to_so_file: the library.
        alloc_fn_name: its function `void* f(ssize_t size, int device, stream)`.
        free_fn_name: its function `void f(void* data, ssize_t size, int device, stream)`.

    Raises:
        NotImplementedError: the backend has none; always on the host.
    """

    def __new__(cls, path_to_so_file: str, alloc_fn_name: str, free_fn_name: str) -> Any:
        make = _target.attribute("memory.CUDAPluggableAllocator", _FIXED)
        return make(path_to_so_file, alloc_fn_name, free_fn_name)


def change_current_allocator(allocator: CUDAPluggableAllocator) -> None:
    """Use another allocator for the device; possible before the first use only.

    Raises:
        NotImplementedError: the backend's cannot be exchanged; always on the host.
    """
    _target.attribute("memory.change_current_allocator", _FIXED)(allocator)
