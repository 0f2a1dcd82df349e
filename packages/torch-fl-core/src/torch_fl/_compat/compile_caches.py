"""Owns: the keys of the compiler's caches.

Reason: PyTorch lets a program tell its entries from others' by `torch.compiler.config.cache_key_tag`,
which is one value for the whole process; a region adds its own to it for the time in which it is
compiled. Dated 2026-11, torch 2.11 to 2.14. Held by tests/compile/test_compile_contracts.py.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from torch.compiler import config

__all__ = ["tagged"]


def tagged(tag: str) -> AbstractContextManager[object]:
    """Within it, entries are written and looked for under `tag` too."""
    before = config.cache_key_tag
    if tag in before.split(";"):
        return config.patch(cache_key_tag=before)
    return config.patch(cache_key_tag=f"{before};{tag}" if before else tag)
