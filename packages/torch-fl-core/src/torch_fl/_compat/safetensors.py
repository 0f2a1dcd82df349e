"""Owns: `device="flagos"` for safetensors.

Reason: safetensors compares the device's name with a list of its own, but takes a number as it is
and hands it to PyTorch, for which it is a device of the accelerator: flagos, where flagos is
active. So the name becomes the number. Dated 2026-11, safetensors 0.8. Held by
tests/interop/test_safetensors.py.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from torch_fl import _C
from torch_fl._compat.importing import when_imported

_FLAGOS = "flagos"


def install() -> None:
    """Lets safetensors load to flagos devices. It need not be installed, now or ever."""
    when_imported("safetensors", _change)


def _change(module: Any) -> None:
    opener = opening(module.safe_open)
    for name in ("safetensors", "safetensors.torch"):
        loaded: Any = sys.modules.get(name)
        if getattr(loaded, "safe_open", None) is not None:
            loaded.safe_open = opener


def opening(safe_open: Callable[..., Any]) -> Callable[..., Any]:
    """`safe_open`, safetensors' own, knowing flagos devices."""

    @functools.wraps(safe_open, updated=())
    def opener(filename: Any, framework: Any, device: Any = "cpu", **options: Any) -> Any:
        return safe_open(filename, framework, device=_number_of(device), **options)

    return opener


def _number_of(device: Any) -> Any:
    name, _, index = str(device).partition(":")
    if name != _FLAGOS:
        return device
    return int(index) if index else _C.current_device()
