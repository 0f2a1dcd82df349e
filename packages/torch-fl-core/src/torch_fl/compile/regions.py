"""Owns: the graphs that Inductor gets of flagos: renamed before, bounded afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torch_fl import _C
from torch_fl.compile import cache_key, eager_calls, triton_device
from torch_fl.compile import target as targets
from torch_fl.compile.renaming import FLAGOS, Renaming, mentions
from torch_fl.plugins import selection

HOST = "cpu"


@dataclass(frozen=True)
class Region:
    """A renamed graph. `inputs`: its example inputs, renamed. `mark`: what its boundary needs, in
    values that a cache can keep; None where Inductor compiles for flagos itself, without one."""

    inputs: list[Any]
    mark: dict[str, Any] | None

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Inductor's caches know flagos' graphs from the target's own, and the plugin's target
        forces its settings."""
        with cache_key.tagged(), torch._inductor.config.patch(triton_device.settings()):
            yield


def to_target() -> Renaming:
    """flagos as the device that it stands on."""
    target = _target()
    return Renaming(FLAGOS, target, index=target != HOST)


def _target() -> str:
    return selection.current().target or HOST


def enter(graph: GraphModule, inputs: Sequence[Any]) -> Region | None:
    """Renames a graph of flagos tensors to the target's in place; None for one without."""
    if not mentions(graph, FLAGOS):
        return None
    targets.check()
    if targets.is_triton_device():
        return Region(list(inputs), None)
    devices = [_flagos_index(value) for value in _outputs(graph)]
    kept = eager_calls.keep(graph)
    renaming = to_target()
    renaming.graph(graph)
    return Region([renaming.value(value) for value in inputs], {"devices": devices, "eager": kept})


def bounded(call: Callable[..., Any], mark: dict[str, Any] | None) -> Callable[..., Any]:
    """`call`, which takes and gives the target's tensors, for flagos tensors."""
    if mark is None:
        return call
    eager_calls.define(mark["eager"])
    region = _C.CompiledRegion(call, mark["devices"], mark.get("written", []))
    region._boxed_call = True
    return region


@contextlib.contextmanager
def renamed(graph: GraphModule) -> Iterator[None]:
    """For passes over a joint graph that ask for the device by name.

    On the host nothing is renamed: there the graph's CPU tensors are not flagos', and which of a
    pass' new nodes were flagos' could not be told. No such pass is for CPUs.
    """
    target = _target()
    if target == HOST or not mentions(graph, FLAGOS):
        yield
        return
    to_target().graph(graph)
    try:
        yield
    finally:
        Renaming(target, FLAGOS, index=True).graph(graph)


def _outputs(graph: GraphModule) -> Sequence[Any]:
    (output,) = graph.graph.find_nodes(op="output")
    values = output.args[0]
    return values if isinstance(values, (tuple, list)) else (values,)


def _flagos_index(value: Any) -> int:
    """The index of a result's flagos device, -1 for what is none of flagos'."""
    found = value.meta.get("val") if isinstance(value, Node) else value
    if isinstance(found, torch.Tensor) and found.device.type == FLAGOS:
        return found.device.index or 0
    return -1


