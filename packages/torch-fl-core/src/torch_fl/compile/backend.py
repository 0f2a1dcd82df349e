"""Owns: `torch.compile(model, backend="flagos")`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

__all__ = ["flagos", "reset"]


def flagos(
    graph: GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """Compiles a graph with Inductor: the same as `backend="inductor"` does for flagos tensors, by
    a name that says so.

    `mode`: as `torch.compile` has it ("default", "reduce-overhead", "max-autotune",
    "max-autotune-no-cudagraphs"). `options`: settings of `torch._inductor.config` for this
    compilation and no other, its backward pass included. RuntimeError for an option that Inductor
    does not know, or whose value is of another type.
    """
    return _inductor(mode, options)(graph, inputs)


def _inductor(mode: str | None, options: Mapping[str, Any] | None) -> Any:
    return torch._TorchCompileInductorWrapper(mode, options, dynamic=None)


def reset() -> None:
    """What `torch.compiler.reset` asks of a backend: recorded graphs are forgotten."""
    _inductor(None, None).reset()


flagos.reset = reset  # type: ignore[attr-defined]
