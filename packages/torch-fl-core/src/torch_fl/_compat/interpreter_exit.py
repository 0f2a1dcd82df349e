"""Owns: leaving the interpreter right after `backward()` without an abort.

Reason: an autograd worker thread may still hold the last reference to a Python object when the
interpreter is finalised; it then asks for the GIL, and CPython before 3.14 ends the thread inside
code that must not throw: the process aborts (25 of 36 runs with a bare PrivateUse1 backend, torch
2.13). A hook that yields the GIL lets the thread finish first. Dated 2026-11. Held by
tests/test_exit.py::test_exit_right_after_backward.
"""

from __future__ import annotations

import atexit
import time

_YIELDS = 3  # each lets every waiting thread take the GIL once


def install() -> None:
    """Registers the hook; it runs before the interpreter starts to go away."""
    atexit.register(_yield_to_workers)


def _yield_to_workers() -> None:
    for _ in range(_YIELDS):
        time.sleep(0)
