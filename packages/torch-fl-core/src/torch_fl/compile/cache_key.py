"""Owns: what tells flagos' entries in the compiler's caches from others'.

A renamed graph looks like one of the target's own, but it is called differently, and what it was
made from includes the plugin and the routes of operators that stay calls.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from torch_fl._compat import compile_caches
from torch_fl.plugins import selection


def tag() -> str:
    """Changes with the core, the plugin and its version."""
    from torch_fl import __version__

    plugin = selection.current().plugin
    who = f"{plugin.name}-{plugin.version}" if plugin else "host"
    return f"flagos:{__version__}:{who}"


def tagged() -> AbstractContextManager[object]:
    """Adds the tag to the keys of what is compiled inside."""
    return compile_caches.tagged(tag())
