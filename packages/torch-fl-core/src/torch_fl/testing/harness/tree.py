"""Owns: walking through nested arguments and results.

Lists, tuples (named ones too) and dicts are nodes, all else is a
leaf. ``torch.Size`` is a leaf, because it is a value and not a container of results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch


def _children(node: Any) -> list[tuple[str, Any]] | None:
    """The named children of a node, or None for a leaf."""
    if isinstance(node, dict):
        return [(str(key), value) for key, value in node.items()]
    if isinstance(node, (list, tuple)) and not isinstance(node, torch.Size):
        return [(str(index), value) for index, value in enumerate(node)]
    return None


def walk(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield ``(path, leaf)`` from left to right; a path is keys and indices joined by dots."""
    children = _children(node)
    if children is None:
        yield path, node
        return
    for name, child in children:
        yield from walk(child, f"{path}.{name}" if path else name)


def tensors(node: Any) -> list[torch.Tensor]:
    """The tensors of a tree, from left to right."""
    return [leaf for _, leaf in walk(node) if isinstance(leaf, torch.Tensor)]


def structure(node: Any) -> str:
    """A text that is equal for two trees iff their containers and leaf types are equal."""
    children = _children(node)
    if children is None:
        return type(node).__name__
    inside = ", ".join(
        f"{name}: {structure(child)}" if isinstance(node, dict) else structure(child)
        for name, child in children
    )
    return f"{type(node).__name__}({inside})"


def transform(node: Any, function: Callable[[str, Any], Any], path: str = "") -> Any:
    """The same tree with ``function(path, leaf)`` in place of each leaf."""
    children = _children(node)
    if children is None:
        return function(path, node)
    values = [
        transform(child, function, f"{path}.{name}" if path else name) for name, child in children
    ]
    if isinstance(node, dict):
        return dict(zip(node, values, strict=True))
    if hasattr(node, "_fields"):  # a namedtuple takes its fields one by one
        return type(node)(*values)
    return type(node)(values)
