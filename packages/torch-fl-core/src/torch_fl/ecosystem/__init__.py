"""Owns: which libraries have to be told of flagos, and when that happens.

Most need nothing: they take the device that they are given. Those that keep a list of the devices
they know get flagos added when somebody imports them, and never before.
"""

from __future__ import annotations

from torch_fl._compat.importing import when_imported
from torch_fl.ecosystem import lightning

__all__ = ["install"]


def install() -> None:
    """Lets Lightning know flagos as soon as it is imported, or now if it is."""
    for module in lightning.CONNECTORS:
        when_imported(module, lightning.introduce)
