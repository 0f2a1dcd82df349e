"""Owns: what happens where Inductor fails on a graph of flagos.

Reason: PyTorch can only leave the whole compiled function then (`suppress_errors`), and not at all
in a backward pass, which is compiled when autograd is under way. The function that every graph goes
through is wrapped outermost: a failure is explained, or another callable given for the graph.
Exceptions by which Dynamo steers itself pass. Dated 2026-11, torch 2.11 to 2.14. Held by
tests/compile/test_compile_fallback.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch.fx import GraphModule

from torch_fl._compat.importing import when_imported

__all__ = ["Fallback", "install"]


class Fallback(Protocol):
    """What is done about it; torch_fl.compile.fallback is it."""

    def concerns(self, graph: GraphModule) -> bool:
        """Whether a graph is one of flagos."""

    def spare(self, graph: GraphModule) -> Any:
        """A copy that can run eagerly; None where that is not wanted."""

    def is_decided(self, spare: Any, *, backward: bool, number: int | None) -> bool:
        """Whether it has to run, and nothing need be compiled."""

    def instead(self, spare: Any, error: Exception, *, backward: bool, number: int | None) -> Any:
        """The callable that takes the graph's place."""

    def explain(self, error: Exception) -> None:
        """Adds to the error what a user can do."""


def install(fallback: Callable[[], Fallback]) -> None:
    """Wraps Inductor's function when it is imported: after torch_fl's other changes to it."""
    when_imported("torch._inductor.compile_fx", functools.partial(_change, fallback))


def _change(fallback: Callable[[], Fallback], module: Any) -> None:
    from torch._dynamo.exc import RestartAnalysis, SkipFrame
    from torch._inductor.virtualized import V

    compile_inner = module._compile_fx_inner

    @functools.wraps(compile_inner)
    def compile_or_fall_back(
        gm: GraphModule, example_inputs: Sequence[Any], *args: Any, **kwargs: Any
    ) -> Any:
        # A package for another process cannot run eagerly.
        if V.aot_compilation or not fallback().concerns(gm):
            return compile_inner(gm, example_inputs, *args, **kwargs)
        spare = fallback().spare(gm)
        which: dict[str, Any] = {"backward": bool(kwargs.get("is_backward"))}
        which["number"] = kwargs.get("graph_id")  # a forward pass and its backward pass share it
        if spare is not None and fallback().is_decided(spare, **which):
            return spare.run
        try:
            return compile_inner(gm, example_inputs, *args, **kwargs)
        except (SkipFrame, RestartAnalysis):
            raise
        except Exception as error:
            if spare is None:
                fallback().explain(error)
                raise
            return fallback().instead(spare, error, **which)

    module._compile_fx_inner = compile_or_fall_back
