"""Owns: what tells flagos' entries in the compiler's caches from others'.

A renamed graph looks like one of the target's own, but it is called differently, and what it was
made from includes the plugin, the Triton that wrote its kernels and the operators that stay calls.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from torch_fl._compat.compiler import caches
from torch_fl.compile import eager, flagtree, routed
from torch_fl.compile.renaming import FLAGOS, is_on, values
from torch_fl.plugins import selection

_FORMAT = "3"  # of what a cached graph says to its boundary: a new one hides older entries


def _flagtree() -> str:
    return flagtree.flagtree_version() or ""


def _plugin() -> str:
    plugin = selection.current().plugin
    return f"{plugin.name}-{plugin.version}" if plugin else "host"


def _calls() -> str:
    names = sorted({*routed.names(), *eager.users_operators()})
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16] if names else ""


# Whatever else decides what a graph becomes adds a word here. Asked at each compilation.
_PARTS: dict[str, Callable[[], str]] = {
    "plugin": _plugin,
    "flagtree": functools.cache(_flagtree),  # one process has one Triton
    "calls": _calls,
}


def tag() -> str:
    """Changes with the core, the plugin and its version, FlagTree's version, and the operators that
    a compiled region calls as an eager program would."""
    from torch_fl import __version__

    parts = [f"{name}={word}" for name, part in _PARTS.items() if (word := part())]
    return ":".join(["flagos", __version__, _FORMAT, *parts])


def tagged(devices: Sequence[int] = ()) -> AbstractContextManager[object]:
    """Adds the tag to the keys of what is compiled inside. `devices`: of a renamed graph's results;
    graphs that differ in nothing else look the same by the target's name."""
    word = tag()
    return caches.tagged(f"{word}:{','.join(map(str, devices))}" if devices else word)


def calls() -> Collection[str]:
    """Operators that are not decomposed, because they stay calls."""
    return routed.names()


def concerns(model: Any, inputs: Sequence[Any]) -> bool:
    """Whether a graph, as Dynamo or an export makes it, has anything on flagos."""
    if any(is_on(value, FLAGOS) for value in pytree.tree_leaves(list(inputs))):
        return True
    if isinstance(model, torch.nn.Module) and any(
        tensor.device.type == FLAGOS for tensor in (*model.parameters(), *model.buffers())
    ):
        return True
    return isinstance(model, GraphModule) and any(map(_is_named, values(model)))


def _is_named(value: Any) -> bool:
    # Before autograd a device may still be a word.
    return is_on(value, FLAGOS) or (isinstance(value, str) and value.partition(":")[0] == FLAGOS)
