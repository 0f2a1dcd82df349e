"""Owns: the core's requirement on torch: the minor release that it is built for, and no other.

The C++ layout changes with each minor release, so a binary fits one. A source distribution fits all
that are supported. Called by the build backend; torch is looked at and not imported.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SUPPORTED = "torch>=2.11"

_building = ""


def build_state(state: str) -> None:
    """The backend says what it is about to make: "sdist", "wheel", "editable" ..."""
    global _building
    _building = state


def dynamic_metadata(
    settings: Mapping[str, Any], project: Mapping[str, Any]
) -> dict[str, list[str]]:
    """The one requirement that the static list lacks."""
    return {"dependencies": [SUPPORTED if _building == "sdist" else f"torch=={_minor()}.*"]}


def dynamic_wheel(settings: Mapping[str, Any]) -> dict[str, bool]:
    """A wheel's requirements differ from the source distribution's."""
    return {"dependencies": True}


def _minor() -> str:
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        raise RuntimeError(
            "torch-fl-core is built against the torch that is installed, and there is none. "
            "Install torch 2.11 or newer, then `pip install --no-build-isolation torch-fl-core`."
        )
    text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    found = re.search(r"__version__\s*=\s*['\"](\d+\.\d+)", text)
    if found is None:
        raise RuntimeError(f"{spec.origin} does not say which torch it is.")
    return found[1]
