"""Owns: the way from FlagGems' list of operators to kernels of the route `flaggems`.

FlagGems is imported when a route first asks for one of its kernels, never before: it starts Triton.
Its kernels are called as FlagGems' own registration would call them; nothing of it is patched.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch_fl.plugins import selection
from torch_fl.routing import kernels

ROUTE = "flaggems"


def install() -> None:
    """Makes the route known."""
    kernels.register_later(ROUTE, load)


def load() -> Mapping[str, kernels.Function]:
    """FlagGems' kernels for operators of this PyTorch, by operator.

    Raises:
        ImportError: the backend does not run Triton kernels, or FlagGems is not installed.
    """
    plugin = selection.current().plugin
    if plugin is None or plugin.triton_target() is None:
        name = plugin.name if plugin else "none"
        raise ImportError(f"the backend {name!r} does not run Triton kernels")
    flag_gems = importlib.import_module("flag_gems")
    listed = [row for rows in flag_gems.FULL_CONFIG_BY_FUNC.values() for row in rows]
    return {name: function for name, function in _usable(listed) if kernels.exists(name)}


def _usable(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[str, kernels.Function]]:
    """A row is a name, a function, and perhaps a condition on this PyTorch."""
    for name, function, *conditions in rows:
        if all(condition() if callable(condition) else condition for condition in conditions):
            yield name, function
