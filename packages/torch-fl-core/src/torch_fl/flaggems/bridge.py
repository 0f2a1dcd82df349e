"""Owns: the way from FlagGems' list of operators to kernels of the route `flaggems`.

FlagGems is imported when a route first asks for one of its kernels, never before: it starts Triton.
It registers its kernels as it always does, for the device that it knows, but into a list instead of
into PyTorch's dispatcher; nothing of it is patched. The engine hands them tensors of that device.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import torch

from torch_fl.plugins import selection
from torch_fl.routing import kernels

OWN_KEY = "PrivateUse1"


def load() -> Mapping[str, kernels.Kernel]:
    """FlagGems' kernels for operators of this PyTorch, by operator.

    Raises:
        ImportError: the backend does not run Triton kernels, or FlagGems is not installed or takes
            this machine for another device than the backend does.
    """
    current = selection.current()
    plugin = current.plugin
    if plugin is None or plugin.triton_target() is None:
        name = plugin.name if plugin else "none"
        raise ImportError(f"the backend {name!r} does not run Triton kernels")
    flag_gems = importlib.import_module("flag_gems")
    listed = List()
    flag_gems.enable(lib=listed)
    keys = {OWN_KEY: False}
    if current.target is not None:
        keys[torch._C._dispatch_key_for_device(current.target)] = True
    if others := listed.keys - keys.keys():
        raise ImportError(
            f"FlagGems takes this machine for another device ({', '.join(others)}) than the "
            f"backend {plugin.name!r} does"
        )
    return {
        name: kernels.Kernel(function, on_target=keys[key])
        for name, (function, key) in listed.functions.items()
        if kernels.exists(name)
    }


class List:
    """Takes registrations as `torch.library.Library` does, and keeps them."""

    def __init__(self) -> None:
        self.functions: dict[str, tuple[kernels.Function, str]] = {}

    @property
    def keys(self) -> set[str]:
        """The dispatch keys that functions were registered under."""
        return {key for _, key in self.functions.values()}

    def impl(self, name: str, function: kernels.Function, key: str, **_options: object) -> None:
        """One operator of aten, or of the namespace in its name."""
        self.functions[name] = (function, key)
