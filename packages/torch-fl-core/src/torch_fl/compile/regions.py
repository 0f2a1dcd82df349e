"""Owns: the graphs that Inductor gets of flagos: renamed before, bounded afterwards."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torch_fl import _C
from torch_fl.compile import (
    cache_key,
    eager,
    host_streams,
    packages,
    random_states,
    triton_device,
)
from torch_fl.compile import target as targets
from torch_fl.compile.renaming import FLAGOS, Renaming, is_flagos, mentions
from torch_fl.plugins import selection

HOST = "cpu"


@dataclass(frozen=True)
class Region:
    """A renamed graph. `inputs`: its example inputs, renamed. `mark`: what its boundary needs, in
    values that a cache can keep; None where Inductor compiles for flagos itself, without one."""

    inputs: list[Any]
    mark: dict[str, Any] | None
    given: list[int] = field(default_factory=list)
    """For each input that is a tensor the index of its flagos device, -1 for none of flagos'."""

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Inductor's caches know flagos' graphs from the target's own, and the plugin's target
        forces its settings."""
        with (
            cache_key.tagged(self.mark["devices"] if self.mark else ()),
            torch._inductor.config.patch(triton_device.settings()),
            packages.described(self.mark, self.given),
        ):
            yield


def to_target() -> Renaming:
    """flagos as the device that it stands on."""
    target = _target()
    return Renaming(FLAGOS, target, index=None if target == HOST else True)


def has_workers() -> bool:
    """Whether other processes compile kernels for flagos: Triton's, where the target allows it."""
    profile = targets.profile()
    return profile is not None and profile.compile_threads != 1


def _target() -> str:
    return selection.current().target or HOST


def enter(graph: GraphModule, inputs: Sequence[Any]) -> Region | None:
    """Renames a graph of flagos tensors to the target's in place; None for one without."""
    if not mentions(graph, FLAGOS):
        return replace(_frozen.pop(), inputs=list(inputs)) if _frozen else None
    targets.check()
    if targets.is_triton_device():
        return Region(list(inputs), None)
    inputs = random_states.sized(graph, inputs)
    mark = {
        "devices": [_flagos_index(value) for value in _outputs(graph)],
        "eager": eager.keep(graph),
    }
    if _target() == HOST:
        host_streams.forget(graph)
    given = [_flagos_index(value) for value in inputs if isinstance(value, torch.Tensor)]
    renaming = to_target()
    renaming.graph(graph)
    return Region([renaming.value(value) for value in inputs], mark, given)


_frozen: list[Region] = []  # entered, and not compiled yet


def pending() -> Region | None:
    """The region of a graph that has been renamed to be frozen, and comes to be compiled now."""
    return _frozen[-1] if _frozen else None


@contextlib.contextmanager
def freezing(graph: GraphModule, inputs: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """For passes that make constants of a graph's parameters, and packs for the target's kernels of
    these: the graph is the target's from here on. Gives the inputs by their new names."""
    region = enter(graph, inputs)
    if region is None or region.mark is None:
        yield inputs
        return
    _frozen.append(region)
    try:
        yield region.inputs
    finally:
        if region in _frozen:
            _frozen.remove(region)


def constants(parameters: Sequence[Any]) -> list[Any]:
    """The tensors that become a frozen graph's constants."""
    renaming = to_target()
    return [renaming.value(value) if _frozen else value for value in parameters]


def bounded(call: Callable[..., Any], mark: dict[str, Any] | None) -> Callable[..., Any]:
    """`call`, which takes and gives the target's tensors, for flagos tensors."""
    if mark is None:
        return call
    eager.define(mark["eager"])
    region = _C.CompiledRegion(call, mark["devices"], mark.get("written", []))
    region._boxed_call = True
    return region


@contextlib.contextmanager
def renamed(graph: GraphModule) -> Iterator[list[GraphModule]]:
    """For passes over a joint graph that ask for the device by name. What they make of it is added
    to the list that this gives, and is flagos' again afterwards as the graph is.

    On the host nothing is renamed: there the graph's CPU tensors are not flagos', and which of a
    pass' new nodes were flagos' could not be told. No such pass is for CPUs.
    """
    target, graphs = _target(), [graph]
    if target == HOST or not mentions(graph, FLAGOS):
        yield graphs
        return
    to_target().graph(graph)
    try:
        yield graphs
    finally:
        back = Renaming(target, FLAGOS, index=True)
        for one in graphs:
            back.graph(one)


def _outputs(graph: GraphModule) -> Sequence[Any]:
    (output,) = graph.graph.find_nodes(op="output")
    values = output.args[0]
    return values if isinstance(values, (tuple, list)) else (values,)


def _flagos_index(value: Any) -> int:
    """The index of a result's flagos device, -1 for what is none of flagos'."""
    found = _traced(value) if isinstance(value, Node) else value
    if is_flagos(found):
        return found.device.index or 0
    return -1


def _traced(node: Node) -> Any:
    """What a node gave when it was traced. What is put into an exported graph afterwards says
    nothing: copies back to buffers, and the buffers."""
    found = node.meta.get("val")
    if found is not None:
        return found
    if node.op == "get_attr" and node.graph.owning_module is not None:
        return operator.attrgetter(str(node.target))(node.graph.owning_module)
    if node.target is torch.ops.aten.copy_.default and isinstance(node.args[0], Node):
        return _traced(node.args[0])
    return None
