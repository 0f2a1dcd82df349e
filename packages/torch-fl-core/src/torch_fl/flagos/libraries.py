"""Owns: the doors to what lies below the device: handles of libraries, waiting that shows, status
numbers. The host has nothing below it."""

from __future__ import annotations

import time
from typing import Any

from torch_fl.flagos import _target
from torch_fl.flagos.devices import _lazy_init

__all__ = [
    "check_error",
    "cudart",
    "current_blas_handle",
    "current_solver_handle",
    "get_sync_debug_mode",
    "ipc_collect",
    "set_sync_debug_mode",
]

_NO_LIBRARY = (
    "the host backend's kernels are PyTorch's own for the CPU: there is no handle to give."
)
_NO_WAITING = (
    "on the host backend work is complete when the call that gives it returns, so no call waits "
    'for any. Use "default".'
)
_NO_STATUS = "the host backend has no status numbers but 0: errors are exceptions."
_MODES = {"default": 0, "warn": 1, "error": 2}


def current_blas_handle() -> int:
    """The handle of the backend's BLAS library; NotImplementedError on the host."""
    _lazy_init()
    return int(_target.attribute("current_blas_handle", _NO_LIBRARY)())


def current_solver_handle() -> int:
    """The handle of the backend's solver library; NotImplementedError on the host."""
    _lazy_init()
    return int(_target.attribute("current_solver_handle", _NO_LIBRARY)())


def cudart() -> Any:
    """The backend's own module of runtime functions; NotImplementedError on the host."""
    _lazy_init()
    return _target.attribute("cudart", _NO_LIBRARY)()


def check_error(res: int) -> None:
    """Raise the backend's error for a status number of `cudart`, unless it is 0.

    Raises:
        NotImplementedError: another number than 0 on the host, which has none.
    """
    if res != 0 or not _target.on_host():
        _target.attribute("check_error", _NO_STATUS)(res)


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """What happens when a call waits for the device: 0 "default" nothing, 1 "warn", 2 "error".

    Raises:
        RuntimeError: no such mode.
        NotImplementedError: the backend cannot tell; on the host for every mode but the default.
    """
    _lazy_init()
    mode = _MODES.get(debug_mode, -1) if isinstance(debug_mode, str) else debug_mode
    if mode not in _MODES.values():
        raise RuntimeError(
            f"invalid value of debug_mode {debug_mode!r}, expected one of `default`, `warn`, "
            "`error`, or 0, 1, 2"
        )
    if mode != 0 or not _target.on_host():
        _target.attribute("set_sync_debug_mode", _NO_WAITING)(mode)


def get_sync_debug_mode() -> int:
    """The mode of `set_sync_debug_mode`: 0, 1 or 2."""
    _lazy_init()
    ask = None if _target.on_host() else _target.find("get_sync_debug_mode")
    return int(ask()) if ask else 0


def ipc_collect() -> None:
    """Give back memory that other processes have let go of; on the host nothing waits for that."""
    _lazy_init()
    ask = None if _target.on_host() else _target.find("ipc_collect")
    if ask:
        ask()


def _sleep(cycles: int) -> None:
    """Keep the current stream busy for about so many cycles; on the host one is a nanosecond."""
    _lazy_init()
    if _target.on_host():
        time.sleep(cycles * 1e-9)
    else:
        _target.attribute("_sleep", _NO_LIBRARY)(cycles)
