"""Owns: which backend this process uses."""

from __future__ import annotations

import os

from torch_fl.plugins import host
from torch_fl.plugins.spec import Plugin

_EMBEDDED = {host.plugin.name: host.plugin}


def select() -> Plugin:
    """The backend named by FLAGOS_PLUGIN, else the embedded one.

    Raises ValueError for a name that is not installed, listing those that are.
    """
    name = os.environ.get("FLAGOS_PLUGIN", "").strip() or host.plugin.name
    if name not in _EMBEDDED:
        raise ValueError(
            f"FLAGOS_PLUGIN is {name!r}, but only these backends are installed: "
            f"{', '.join(sorted(_EMBEDDED))}."
        )
    return _EMBEDDED[name]
