"""Owns: where `torch.load` puts storages of CUDA inside a migration.

PyTorch keeps a list of what can restore a storage at a location, and lets others add to it. The
entry stays in the list; outside of migrations it leaves every location to the others.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from torch_fl.migrate import scopes
from torch_fl.migrate.names import is_name, renamed

__all__ = ["install"]

_BEFORE_CUDA = 17  # PyTorch's own: 10 is the CPU's, 20 CUDA's. Two must not be equal.


@functools.cache
def install() -> None:
    torch.serialization.register_package(_BEFORE_CUDA, _no_tag, _restore)


def _no_tag(storage: Any) -> None:
    """A storage keeps its true location when it is saved."""


def _restore(storage: Any, location: str) -> Any:
    scope = scopes.current()
    if scope is None or not is_name(location):
        return None
    scope.add(f"torch.load({location!r})")
    return torch.serialization.default_restore_location(storage, renamed(location))
