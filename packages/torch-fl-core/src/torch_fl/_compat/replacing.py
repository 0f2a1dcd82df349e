"""Owns: putting something else into the place of a module's or a class's name, for a while.

Reason: some of PyTorch's names can be reached by no mechanism of its own (cuda_names.py,
migrate/cuda_module.py say which). They are put back as they were; where somebody else has replaced
one in the meantime, his stays. Held by tests/migrate/test_migrate_scope.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["Place", "Replacement"]

Place = tuple[Any, str, Any]
"""The owner of a name (a module, a class, a dict), the name, and what stands there meanwhile."""


class Replacement:
    """Some names, replaced from `put` to `restore`."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._before: list[Any] = []

    def put(self) -> None:
        self._before = [_get(owner, name) for owner, name, _ in self._places]
        for owner, name, value in self._places:
            _set(owner, name, value)

    def restore(self) -> None:
        for (owner, name, value), before in zip(self._places, self._before, strict=True):
            if _get(owner, name) is value:
                _set(owner, name, before)
        self._before = []


def _get(owner: Any, name: str) -> Any:
    # A class' own entry, not what an attribute access makes of it.
    return owner[name] if isinstance(owner, dict) else vars(owner)[name]


def _set(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, dict):
        owner[name] = value
    else:
        setattr(owner, name, value)
