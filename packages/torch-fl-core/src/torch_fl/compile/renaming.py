"""Owns: a traced graph under another device's name: fake tensors, device arguments, constants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from torch_fl import _C
from torch_fl._compat.compiler.fake_tensors import FakeTensor, no_dispatch, on_device

FLAGOS = "flagos"

# What tracing leaves on a node that may hold tensors.
_META = ("val", "example_value", "eager_input_vals", "fake_result")

# The most of a graph's values, which need not be searched for others.
_SINGLE = (Node, torch.Tensor, torch.SymInt, torch.device, torch.dtype, str, int, float)


class Renaming:
    """Devices of one type as those of another. A tensor is renamed once, however often it is met,
    and its storage stays the same, so what shares memory goes on sharing it.

    `source`, `target`: device types. `index`: the number of the target's device; True for the one
    that the source's device has, None where the target's devices have none.
    """

    def __init__(self, source: str, target: str, *, index: int | None) -> None:
        self._source = source
        self._target = target
        self._index = index
        self._made: dict[int, tuple[object, object]] = {}  # keeps the key's object alive

    def device(self, device: torch.device) -> torch.device:
        """The device's other name."""
        if device.type != self._source:
            return device
        if self._index is None:
            return torch.device(self._target)
        if self._index is True:
            return torch.device(self._target, device.index or 0)
        return torch.device(self._target, self._index)

    def value(self, value: Any) -> Any:
        """A tensor, device or anything else in a graph, renamed where it is the source's."""
        if isinstance(value, torch.device):
            return self.device(value)
        if not isinstance(value, torch.Tensor) or value.device.type != self._source:
            return value
        if (known := self._made.get(id(value))) is not None:
            return known[1]
        made = self._tensor(value)
        self._made[id(value)] = (value, made)
        return made

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if isinstance(tensor, FakeTensor):
            return on_device(tensor, self.device(tensor.device))
        with no_dispatch():  # a constant, while its graph's fake mode is on
            if self._source == FLAGOS:
                return _C.to_target(tensor)
            return _C.from_target(tensor, self.device(tensor.device).index)

    def tree(self, values: Any) -> Any:
        """Whatever tensors and devices are in a nest of lists, tuples and dicts, renamed."""
        return pytree.tree_map(self.value, values)

    def graph(self, graph: GraphModule) -> None:
        """Renames a graph in place, with the graphs inside it and its constants."""
        for module in graph_modules(graph):
            self._constants(module)
            for name, value in module.meta.items():
                if isinstance(value, torch.Tensor):  # a buffer's value before it is written to
                    module.meta[name] = self.value(value)
            for node in module.graph.nodes:
                self.node(node)
            module.recompile()

    def node(self, node: Node) -> None:
        """Renames a node in place: its devices, and what tracing has left on it."""
        for key in _META:
            if key in node.meta:
                node.meta[key] = self.tree(node.meta[key])
        if any(isinstance(leaf, torch.device) for leaf in leaves(node)):
            node.args = torch.fx.node.map_aggregate(node.args, self._argument)
            node.kwargs = torch.fx.node.map_aggregate(node.kwargs, self._argument)

    def _argument(self, argument: Any) -> Any:
        return self.device(argument) if isinstance(argument, torch.device) else argument

    def _constants(self, module: GraphModule) -> None:
        for node in module.graph.nodes:
            if node.op != "get_attr":
                continue
            owner, _, name = node.target.rpartition(".")
            holder = module.get_submodule(owner)
            value = getattr(holder, name, None)
            if isinstance(value, torch.Tensor) and value.device.type == self._source:
                _replace(holder, name, self.value(value))


def _replace(holder: torch.nn.Module, name: str, value: torch.Tensor) -> None:
    # A parameter's place takes nothing but parameters.
    if name in holder._parameters:
        del holder._parameters[name]
        holder.register_buffer(name, value)
    else:
        setattr(holder, name, value)


def graph_modules(graph: GraphModule) -> Iterator[GraphModule]:
    """A graph and those inside it, such as the branches of a condition."""
    for module in graph.modules():
        if isinstance(module, GraphModule):
            yield module


def leaves(node: Node) -> list[Any]:
    """What a node is called with, without nodes' values."""
    return pytree.tree_leaves((node.args, node.kwargs))


def is_flagos(value: Any) -> TypeGuard[torch.Tensor]:
    """Whether a value is a tensor on a flagos device."""
    return isinstance(value, torch.Tensor) and value.device.type == FLAGOS


def is_on(value: Any, device_type: str) -> bool:
    """Whether a value in a graph is a tensor on, or the name of, such a device."""
    if isinstance(value, torch.Tensor):
        return value.device.type == device_type
    return isinstance(value, torch.device) and value.type == device_type


def mentions(graph: GraphModule, device_type: str) -> bool:
    """Whether anything in a graph is on such a device."""
    return any(is_on(value, device_type) for value in values(graph))


def values(graph: GraphModule) -> Iterator[Any]:
    """What may say a device in a graph and those inside it: each node's result, as it was traced
    before autograd or after it, and what the node is called with."""
    for module in graph_modules(graph):
        for node in module.graph.nodes:
            meta = node.meta
            traced = (meta.get("val"), meta.get("example_value"))
            for value in (*traced, *node.args, *node.kwargs.values()):
                if value is None or isinstance(value, _SINGLE):
                    yield value
                else:
                    yield from pytree.tree_leaves(value)
