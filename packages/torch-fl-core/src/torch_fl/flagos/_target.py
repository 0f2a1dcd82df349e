"""Owns: reaching what only a backend's own module has, such as graphs or sensors.

A backend that stands on another device of PyTorch shares that device's indices, streams and memory
with flagos, so what its *target module* does, it does to flagos too. Devices are passed as indices,
streams are translated here. On host memory there is no such module, and a call says why.
"""

from __future__ import annotations

import importlib
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from torch_fl.plugins import selection
from torch_fl.plugins.spec import HostRuntime

if TYPE_CHECKING:
    from types import ModuleType

    import torch

_MODULE = "torch.flagos"


def on_host() -> bool:
    """Whether the device is host memory, and everything about it is the core's own."""
    return isinstance(selection.current().runtime, HostRuntime)


def device_type() -> str | None:
    """The device of PyTorch that flagos stands on; None on host memory."""
    return None if on_host() else selection.current().target


def module() -> ModuleType | None:
    """The module that the plugin names for what device-generic interfaces lack; None without."""
    plugin = selection.current().plugin
    name = plugin.target_module() if plugin else None
    return importlib.import_module(name) if name else None


def find(name: str) -> Any:
    """What the target module has under the dotted `name`; None where there is no such thing."""
    try:
        return attrgetter(name)(module())
    except AttributeError:
        return None


def attribute(name: str, host: str) -> Any:
    """What the target module has under the dotted `name`.

    Args:
        name: the same in torch.flagos and in the target module.
        host: why the host backend does not have it, and what to do instead: a sentence.

    Raises:
        NotImplementedError: there is none; the message says why.
    """
    if on_host():
        raise NotImplementedError(f"{_MODULE}.{name}: {host}")
    found = find(name)
    if found is not None:
        return found
    target = module()
    if target is not None:
        raise NotImplementedError(f"{_MODULE}.{name}: {target.__name__} has no {name}.")
    chosen = selection.current()
    raise NotImplementedError(
        f"{_MODULE}.{name}: " + chosen.error
        if chosen.error
        else f"{_MODULE}.{name}: {chosen.plugin} names no module that has it. Its plugin can, with "
        "the hook torch_fl_target_module."
    )


def stream_for_target(stream: torch.Stream | None) -> Any:
    """A flagos stream as a stream of the target module; None stays None."""
    if stream is None:
        return None
    make = attribute("Stream", "it has no streams but its own.")
    index = stream.device_index
    device_type = attribute("current_stream", "it has none.")(index).device_type
    return make(stream_id=stream.stream_id, device_index=index, device_type=device_type)
