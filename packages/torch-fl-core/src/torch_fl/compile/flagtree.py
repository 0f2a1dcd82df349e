"""Owns: which Triton this process has: FlagTree, another one, or none.

FlagTree and all other builds of Triton install the same package, `triton`, so nothing can be
switched: it was decided when the environment was made. FLAGOS_USE_FLAGTREE=1 only asserts it.
Nothing here imports Triton.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

__all__ = ["flagtree_version", "found", "is_flagtree_active", "require_flagtree"]

_MARKER = "_flagtree_spec"  # a module that only FlagTree's `triton` has
_DISTRIBUTION = "flagtree"

_NEXT_STEP = (
    "FlagTree and stock Triton install the same package 'triton', so torch_fl cannot switch: take "
    "the other one out (pip uninstall triton) and install FlagTree's wheel for your accelerator "
    "(distribution 'flagtree'), or unset FLAGOS_USE_FLAGTREE to compile with what is there."
)


def is_flagtree_active() -> bool:
    """Whether `import triton` gives FlagTree's."""
    folders = _folders()
    if PathFinder.find_spec(_MARKER, folders) is not None:
        return True
    # Older builds of FlagTree lack the module, but the package belongs to their distribution.
    owner = _distribution(_DISTRIBUTION)
    if owner is None:
        return False
    owned = Path(str(owner.locate_file("triton"))).resolve()
    return any(Path(folder).resolve() == owned for folder in folders)


def flagtree_version() -> str | None:
    """FlagTree's version, such as "0.7.0+3.6"; None where FlagTree is not what Triton is, or says
    none."""
    if not is_flagtree_active():
        return None
    owner = _distribution(_DISTRIBUTION) or _distribution("triton")
    return owner.version if owner else None


def require_flagtree() -> None:
    """Raises RuntimeError that says what to do, unless Triton is FlagTree's."""
    if is_flagtree_active():
        return
    if not _folders():
        raise RuntimeError(
            f"FlagTree is required, but there is no package 'triton' at all. {_NEXT_STEP}"
        )
    raise RuntimeError(f"FlagTree is required, but the active Triton is {found()}. {_NEXT_STEP}")


def found() -> str:
    """The active Triton, for messages."""
    folders = _folders()
    if not folders:
        return "no Triton"
    name = "FlagTree" if is_flagtree_active() else "Triton"
    owner = _distribution(name.lower()) or _distribution("triton")
    version = f" {owner.version}" if owner else ""
    return f"{name}{version} in {folders[0]}"


def _folders() -> list[str]:
    """The folders of the package `triton`, imported or not."""
    module = sys.modules.get("triton")
    if module is not None:
        return [str(folder) for folder in getattr(module, "__path__", ())]
    try:
        spec = importlib.util.find_spec("triton")
    except ValueError:  # somebody put a thing without a spec into sys.modules
        return []
    return list(spec.submodule_search_locations or ()) if spec else []


def _distribution(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
