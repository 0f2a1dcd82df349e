"""Owns: wrapping the Python entry point of PyTorch's autograd engine.

Reason: PyTorch offers no hook in front of `backward()`. The entry point is private and known under
two names, because `torch.autograd` imported it from `torch.autograd.graph`; both are replaced.
Dated 2026-11, torch 2.11 to 2.13. Held by tests/test_engine_threads.py::test_entry_point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import graph

Run = Callable[..., Any]


def wrap(wrapper: Callable[[Run], Run]) -> None:
    """Puts `wrapper(entry point)` in the place of the entry point, for the rest of the process."""
    wrapped = wrapper(graph._engine_run_backward)
    modules: tuple[Any, ...] = (graph, torch.autograd)
    for module in modules:
        module._engine_run_backward = wrapped
