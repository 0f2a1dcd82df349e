"""Owns: the operators that Inductor's graphs hold: how often each, and what two runs differ in."""

from __future__ import annotations

import contextlib
import inspect
import operator
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch._inductor.config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph

__all__ = ["counted", "other"]


class _Count(CustomGraphPass):
    """Called with each graph that Inductor compiles and, one by one, with the graphs inside it."""

    def __init__(self, see: Callable[[Graph], None]) -> None:
        self._see = see

    def __call__(self, graph: Graph) -> None:
        self._see(graph)

    def uuid(self) -> str:
        """Another at each question: what a cache has is not compiled, so no graph is in any."""
        return uuid.uuid4().hex


@contextlib.contextmanager
def counted() -> Iterator[Counter[str]]:
    """Counts the operators of all graphs that Inductor compiles inside, forward and backward: after
    autograd, its decompositions and the passes over the joint graph, before all others.

    Products are not padded: whether they are depends on times, and two runs natively differ too.
    """
    found: Counter[str] = Counter()
    count = _Count(lambda graph: found.update(_names(graph)))
    with torch._inductor.config.patch(post_grad_custom_pre_pass=count, shape_padding=False):
        yield found


def other(mine: Mapping[str, int], theirs: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """By name the operators that one side has more often: how often on each."""
    pairs = {name: (mine.get(name, 0), theirs.get(name, 0)) for name in sorted({*mine, *theirs})}
    return {name: (here, there) for name, (here, there) in pairs.items() if here != there}


def _names(graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        # One of an operator's several results is no operator.
        if node.op == "call_function" and node.target is not operator.getitem:
            yield _name(node.target)


def _name(target: Any) -> str:
    """Such as "aten.mm.default", or "_operator.mul" for the arithmetic of sizes."""
    if inspect.isroutine(target):
        return f"{target.__module__}.{target.__qualname__}"
    return str(target)
