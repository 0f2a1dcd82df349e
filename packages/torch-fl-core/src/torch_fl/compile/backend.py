"""Owns: `torch.compile(model, backend="flagos")`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch.fx import GraphModule

from torch_fl._compat.compiler import inductor

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
    return inductor.backend(mode, options)(graph, inputs)


def reset() -> None:
    """What `torch.compiler.reset` asks of a backend: recorded graphs are forgotten."""
    inductor.backend(None, None).reset()


flagos.reset = reset  # type: ignore[attr-defined]
