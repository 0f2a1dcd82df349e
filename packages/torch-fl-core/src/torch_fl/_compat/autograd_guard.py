"""Owns: a clear error for `backward()` on another accelerator's graph.

Reason: with flagos activated, flagos is *the* accelerator for PyTorch's autograd engine, which then
asks only flagos nodes for their stream and fails an internal assertion on a graph of another
accelerator (`opt_ready_stream && opt_parent_stream`). Dated 2026-11, torch 2.11 to 2.13. Held by
tests/test_autograd_guard.py. Only installed where this torch was built with another accelerator;
elsewhere the case cannot arise and nothing is touched.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import graph

from torch_fl._compat import engine

_HARMLESS = ("cpu", "flagos", "meta")
_ASSERTION = "opt_ready_stream"  # of the engine, at a graph that has both on its way
_WHY = (
    "but this process uses flagos as its accelerator (`import torch_fl`), and PyTorch's autograd "
    "engine serves only one. Either move the model and its inputs to 'flagos', or run this part in "
    "a process that does not import torch_fl."
)


def install(delegating: bool = False) -> None:
    """Puts the check in front of the engine. `delegating`: flagos stands on another device."""
    xpu = getattr(torch, "xpu", None)
    if delegating or torch.backends.cuda.is_built() or (xpu is not None and xpu._is_compiled()):
        engine.wrap(guarded)


def guarded(run: engine.Run) -> engine.Run:
    """`run`, the engine's entry point, behind the check of its root tensors."""

    @functools.wraps(run)
    def checked(
        t_outputs: Sequence[torch.Tensor | graph.GradientEdge], *args: Any, **kwargs: Any
    ) -> Any:
        for root in t_outputs:
            device = _device_type(root)
            if device not in _HARMLESS:
                raise RuntimeError(f"backward() was called on a {device} tensor, {_WHY}")
        try:
            return run(t_outputs, *args, **kwargs)
        except RuntimeError as error:
            if _ASSERTION not in str(error):
                raise
            raise RuntimeError(
                f"backward() came to tensors of another accelerator, {_WHY}"
            ) from error

    return checked


def _device_type(root: torch.Tensor | graph.GradientEdge) -> str:
    """The device type of a root of a graph: a tensor, or an edge that stands for one."""
    if isinstance(root, graph.GradientEdge):
        node: Any = root.node
        return str(node._input_metadata[root.output_nr].device.type)
    return root.device.type
