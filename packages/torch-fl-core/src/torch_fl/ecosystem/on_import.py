"""Owns: calling something when a module has been imported, without importing it.

A finder at the head of `sys.meta_path` looks each new module's name up in a table; for the names in
it, it lets the other finders find the module and adds one call to the loader's work.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["call"]

Hook = Callable[[ModuleType], None]


def call(name: str, hook: Hook) -> None:
    """Calls `hook(module)` right after the module of that name is imported; now if it is already.

    An error in the hook is an error of the import.
    """
    module = sys.modules.get(name)
    if module is not None:
        hook(module)
        return
    _finder.hooks[name] = hook
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


class _Finder(MetaPathFinder):
    def __init__(self) -> None:
        self.hooks: dict[str, Hook] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        hook = self.hooks.pop(fullname, None)  # first of all: finding it comes back here
        if hook is None:
            return None
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Calling(spec.loader, hook)
        return spec


class _Calling(Loader):
    """The module's own loader, and the hook after it."""

    def __init__(self, loader: Loader, hook: Hook) -> None:
        self._loader, self._hook = loader, hook

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # From here on the module has its own loader: resources and sources are asked of it.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._hook(module)


_finder = _Finder()
