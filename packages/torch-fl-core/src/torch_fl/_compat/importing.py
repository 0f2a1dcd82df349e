"""Owns: changing a module of PyTorch when it is first imported, lest activation import it.

Reason: `import torch` leaves some of its own modules out, and loading them only to adapt them would
make every process slower (flex_attention alone: 17 ms, torch 2.13). Held by
tests/interop/test_importing.py.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["when_imported"]

Change = Callable[[ModuleType], None]


def when_imported(name: str, change: Change) -> None:
    """Calls `change(module)` right after `name` is imported; at once where it already is."""
    module = sys.modules.get(name)
    if module is not None:
        change(module)
        return
    sys.meta_path.insert(0, _Once(name, change))


class _Once(MetaPathFinder):
    """Finds one module, as everybody else would, and steps aside."""

    def __init__(self, name: str, change: Change) -> None:
        self._name = name
        self._change = change

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module
        change = self._change

        def execute_and_change(module: ModuleType) -> None:
            execute(module)
            change(module)

        # The loader's own attribute, so that the loader stays what others know.
        spec.loader.exec_module = execute_and_change  # type: ignore[method-assign]
        return spec
