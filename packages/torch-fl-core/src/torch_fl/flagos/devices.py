"""Owns: devices of `torch.flagos`: counting, choosing, and starting the runtime.

The runtime starts at the first call that needs it, so that importing, seeding and asking cost
nothing and a process may still fork. What must wait for the start is kept in `_deferred`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

import torch

from torch_fl import _C
from torch_fl.flagos import _target

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from types import TracebackType

    from torch.types import Device

__all__ = [
    "current_device",
    "device",
    "device_count",
    "device_of",
    "init",
    "is_available",
    "is_initialized",
    "set_device",
    "synchronize",
]

DEVICE_TYPE = "flagos"

# Guards everything below. Re-entrant, because deferred calls use the functions of this module.
_lock = threading.RLock()
_ready = False  # the runtime runs and `_deferred` was applied, in this process or its parent
_starting = False  # only the thread that holds `_lock` can see it set
_fork_handler_registered = False
# Each call sets the whole of what its key names, so of two calls with one key the later suffices
# and the order of the rest is kept.
_deferred: dict[Hashable, Callable[[], None]] = {}


class _OnDevice(Protocol):
    """What `device_of` needs: a tensor, a storage, anything that says where it is."""

    @property
    def device(self) -> torch.device: ...


def is_available() -> bool:
    """Whether there is at least one device. Never raises and never starts the runtime."""
    return device_count() > 0


def device_count() -> int:
    """Number of devices of this process. Never raises and never starts the runtime."""
    if not _C.is_initialized():
        # The target's own way to count, where it has one, leaves the process fit to fork.
        count = _target.find("device_count")
        if count is not None:
            return int(count())
    return _C.device_count()


def _is_in_bad_fork() -> bool:
    """Whether this process was forked from one that had started the runtime."""
    return _C.is_in_bad_fork()


def is_initialized() -> bool:
    """Whether the runtime is started and usable in this process."""
    return _C.is_initialized() and not _C.is_in_bad_fork()


def init() -> None:
    """Start the runtime now instead of at the first use. Does nothing when it runs already.

    Raises:
        RuntimeError: in a forked child whose parent had started it, or when it cannot start.
    """
    _lazy_init()


def _lazy_init() -> None:
    """Start the runtime once; PyTorch calls this before it makes the first tensor."""
    global _fork_handler_registered, _ready, _starting
    if _C.is_in_bad_fork():  # before the lock, which another thread may have held at the fork
        raise RuntimeError(
            f"Cannot re-initialize {DEVICE_TYPE} in forked subprocess. To use {DEVICE_TYPE} "
            "with multiprocessing, you must use the 'spawn' start method"
        )
    if _ready:
        return
    with _lock:
        if _ready or _starting:
            return
        if not _fork_handler_registered:
            # Before the start: a child forked half-way through must be refused as well.
            _C.register_fork_handler()
            _fork_handler_registered = True
        _C.initialize()
        _starting = True
        try:
            start = _target.find("init")
            if start is not None:
                start()  # what the target itself has waiting for its start comes first
            while _deferred:
                _deferred.pop(next(iter(_deferred)))()
        finally:
            _starting = False
        _ready = True


def _call_when_ready(
    key: Hashable, call: Callable[[], None], *, replaces_all: bool = False
) -> None:
    """Call now if the runtime runs, else when it starts.

    A waiting call with the same key is dropped; with `replaces_all` every waiting call is.
    """
    with _lock:
        if is_initialized():
            _lazy_init()  # the runtime may have been started from C++: what waits comes first
            call()
            return
        if replaces_all:
            _deferred.clear()
        _deferred.pop(key, None)
        _deferred[key] = call


def _get_device_index(device: Device, optional: bool = False) -> int:
    """Index that `device` names; integers pass as they are, negative ones too.

    `None` and a flagos device without an index mean the current device if `optional` is true.

    Raises:
        ValueError: another device type, or no index where one is needed.
        RuntimeError: a string that is no device.
    """
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if device is not None:
        if not isinstance(device, torch.device):
            raise ValueError(
                f"Expected a {DEVICE_TYPE} device, an index or None, but got {device!r}"
            )
        if device.type != DEVICE_TYPE:
            raise ValueError(f"Expected a {DEVICE_TYPE} device, but got: {device}")
        if device.index is not None:
            return device.index
    if not optional:
        raise ValueError(
            f"Expected a {DEVICE_TYPE} device with an index or an integer, but got: {device}"
        )
    # Before the start every thread is on the first device, and asking must not start anything.
    return _C.current_device() if is_initialized() else 0


def _checked(index: int) -> int:
    """`index`, if there is such a device; RuntimeError that names the count otherwise."""
    if not 0 <= index < device_count():
        _C.refuse_device(index)
    return index


def _existing_index(device: Device) -> int:
    """Index of a device that exists; the current one for `None` and for no index."""
    return _checked(_get_device_index(device, optional=True))


def current_device() -> int:
    """Index of the calling thread's current device."""
    _lazy_init()
    return _C.current_device()


def set_device(device: Device) -> None:
    """Make `device` current for the calling thread; a negative index changes nothing.

    Prefer the `device` context manager, which restores the previous one.

    Raises:
        ValueError: another device type, or no index.
        RuntimeError: no such device.
    """
    index = _get_device_index(device)
    if index >= 0:
        _checked(index)
        _lazy_init()
        _C.set_device(index)


def _exchange_device(device: int) -> int:
    """Make `device` current and return the previous index; negative: do nothing, return -1."""
    if device < 0:
        return -1
    _checked(device)
    _lazy_init()
    return _C.exchange_device(device)


def _maybe_exchange_device(device: int) -> int:
    """As `_exchange_device`, but allowed to leave a device alone that was never used."""
    if device < 0:
        return -1
    _checked(device)
    _lazy_init()
    return _C.maybe_exchange_device(device)


class device:  # noqa: N801  (the name users write: `with torch.flagos.device(1):`)
    """Context manager that makes a device current and restores the previous one.

    Args:
        device: index, "flagos:1", torch.device; `None` or a negative index changes nothing.

    Raises:
        ValueError: another device type.
        RuntimeError: no such device, on entering.
    """

    def __init__(self, device: Device) -> None:
        self.idx = -1 if device is None else _get_device_index(device, optional=True)
        self._previous: list[int] = []  # a stack, so that one object may be entered again

    def __enter__(self) -> None:
        self._previous.append(_exchange_device(self.idx))

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _maybe_exchange_device(self._previous.pop())


class device_of(device):  # noqa: N801  (the name users write, as `device`)
    """Context manager that makes the device of a tensor or storage current.

    Does nothing for an object on another type of device.
    """

    def __init__(self, obj: _OnDevice) -> None:
        place = obj.device
        super().__init__(place if place.type == DEVICE_TYPE else -1)


def synchronize(device: Device = None) -> None:
    """Wait for all work on all streams of a device, the current one by default."""
    _lazy_init()
    _C.synchronize(_existing_index(device))
