"""Owns: in which thread `backward()` runs when flagos is host memory.

Reason: PyTorch's autograd engine gives the nodes of every accelerator to a worker thread. On host
memory nothing runs beside the caller, so that thread only adds two hand-overs: 36 microseconds for
each `backward()`, a fifth of a small training step. The engine keeps to the calling thread where
multithreading is switched off, which is a setting of the thread; it is switched off for the length
of the engine's run and restored.

A run that fails leaves the tasks that it did not come to, and the gradients that these hold, in a
queue. A worker thread would throw them away at once; the queue of a calling thread waits for that
thread's next run. So after a failure one is made, over nothing: whoever catches
torch.OutOfMemoryError and tries a smaller batch has the memory. Dated 2026-11, torch 2.11 to 2.13.
Held by tests/test_engine_threads.py and tests/reliability/test_failed_backward.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
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
    throw_away = _thrower_away()

    @functools.wraps(run)
    def inline(*args: Any, **kwargs: Any) -> Any:
        before = enabled()
        switch(False)
        try:
            return run(*args, **kwargs)
        except BaseException:
            throw_away(run)
            raise
        finally:
            switch(before)

    return inline


def _thrower_away() -> Callable[[engine.Run], None]:
    """What makes an engine drop this thread's tasks of runs that have ended."""
    with torch.inference_mode(False):
        leaf = torch.zeros((), device="cpu", requires_grad=True)
        gradient = torch.zeros((), device="cpu")

    def throw_away(run: engine.Run) -> None:
        # Tasks of a run that has ended come before all others: the queue is without them when this
        # returns. A leaf is its own gradient's only node: no operator runs, no mode sees one.
        options = {"allow_unreachable": True, "accumulate_grad": False}
        run((leaf,), (gradient,), False, False, (leaf,), **options)

    return throw_away
