"""Owns: in which thread `backward()` runs when flagos is host memory.

Reason: PyTorch's autograd engine gives the nodes of every accelerator to a worker thread. On host
memory nothing runs beside the caller, so that thread only adds two hand-overs: 36 microseconds for
each `backward()`, a fifth of a small training step. The engine keeps to the calling thread where
multithreading is switched off, which is a setting of the thread; it is switched off for the length
of the engine's run and restored. Dated 2026-11, torch 2.11 to 2.13. Held by
tests/test_engine_threads.py.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from torch_fl._compat import engine


def install() -> None:
    """Lets `backward()` of a process on host memory run in the thread that calls it."""
    engine.wrap(in_calling_thread)


def in_calling_thread(run: engine.Run) -> engine.Run:
    """`run`, the engine's entry point, with multithreading off while it runs."""
    enabled = torch._C._is_multithreading_enabled
    switch = torch._C._set_multithreading_enabled

    @functools.wraps(run)
    def inline(*args: Any, **kwargs: Any) -> Any:
        before = enabled()
        switch(False)
        try:
            return run(*args, **kwargs)
        finally:
            switch(before)

    return inline
