"""Owns: which functions of torch_fl Dynamo looks into.

Reason: after a graph break Dynamo compiles every function that is called and has to do with torch,
each with guards of its own; PyTorch's device modules are on a list of what it leaves alone. Called
from a function that it traces, they are followed where a second list says so. There is a function
for the first list and none for the second, which is a set of folders that is asked for each time.
So torch_fl is on both: followed from a traced function, and no frame of its own is compiled.
Two parts are otherwise. Functions of generators, memory and sensors are not followed either, as
torch.cuda's are not: they end in C++ that cannot be, with a warning for each. And `testing` has
programs that are compiled as a user's are. Dated 2026-11, torch 2.11 to 2.14. Held by
tests/compile/test_dynamo_frames.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch_fl._compat.importing import when_imported

__all__ = ["install"]

_PACKAGE = Path(__file__).parents[2]
_NOT_FOLLOWED = ("flagos/random.py", "flagos/sensors.py", "flagos/memory/*.py")


def install() -> None:
    """Adds torch_fl to Dynamo's lists when that is imported."""
    when_imported("torch._dynamo.trace_rules", _add_rules)


def _add_rules(rules: Any) -> None:
    rules.add(_PACKAGE.name)
    for pattern in _NOT_FOLLOWED:
        rules.FORCE_SKIP_FILES.update(path.as_posix() for path in _PACKAGE.glob(pattern))
    rules.get_mod_inlinelist = _and(rules.get_mod_inlinelist, _PACKAGE)
    rules.get_legacy_mod_inlinelist = _and(rules.get_legacy_mod_inlinelist, _PACKAGE / "testing")


def _and(others: Any, folder: Path) -> Callable[[], set[str]]:
    prefixes = {f"{folder.as_posix()}/"}

    @functools.wraps(others)
    def both() -> set[str]:
        known: set[str] = others()
        return known | prefixes

    both.cache_clear = others.cache_clear  # type: ignore[attr-defined]  # whoever adds to them
    return both
