"""Owns: loading one source file by its path, without the package around it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from ci.dev.errors import UserError


def load(source: Path) -> ModuleType:
    """The module in that file. Its package is not imported: that would activate a device.

    Raises UserError if there is no such file.
    """
    if not source.exists():
        raise UserError(f"there is no {source}: this checkout is incomplete (`git status`).")
    name = f"_{source.stem.strip('_')}_for_docs"
    spec = importlib.util.spec_from_file_location(name, source)
    if spec is None or spec.loader is None:
        raise UserError(f"{source} cannot be loaded.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module
