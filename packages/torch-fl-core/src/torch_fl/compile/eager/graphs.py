"""Owns: the calls of a graph that go through operators of ours."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from torch_fl.compile import random_states, routed
from torch_fl.compile.eager import choice, operators, schemas
from torch_fl.compile.eager.names import HOSTS, Call
from torch_fl.compile.renaming import FLAGOS, graph_modules, is_on


def keep(graph: GraphModule) -> list[str]:
    """Makes calls of a graph on flagos that must stay flagos' own go through operators of ours.
    Returns what `define` needs in another process."""
    kept = set()
    elsewhere = routed.names()
    for module in graph_modules(graph):
        for node in module.graph.nodes:
            operator = _called(node)
            if operator is None:
                continue
            device = _device(node)
            if device is None or not choice.is_flagos_own(operator, elsewhere):
                continue
            index = device.index or 0
            call = Call(
                operator.name(),
                index,
                numbers=_numbers(node, operator),
                places=_other_places(node, operator, index),
                form=random_states.form(node.target),
            )
            operators.define([str(call)])
            _call_instead(node, operator, operators.overload(call))
            kept.add(str(call))
    return sorted(kept)


def _called(node: Node) -> torch._ops.OpOverload | None:
    """The operator that a node calls, itself or through one that stands around it."""
    if node.op != "call_function":
        return None
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        # `auto_functionalized`, around operators that write, and `with_effects`.
        inner = [arg for arg in node.args if isinstance(arg, torch._ops.OpOverload)]
        return inner[0] if inner else None
    return None


def _device(node: Node) -> torch.device | None:
    values = [node.meta.get("val"), node.args, node.kwargs]
    for value in pytree.tree_leaves(values):
        for leaf in pytree.tree_leaves(_traced(value)):
            if is_on(leaf, FLAGOS):
                return leaf if isinstance(leaf, torch.device) else leaf.device
    return None


def _other_places(
    node: Node, operator: torch._ops.OpOverload, index: int
) -> tuple[tuple[str, int], ...]:
    """The arguments that are elsewhere than on flagos device `index`: in a renamed graph nothing
    tells them apart."""
    values = [arg for arg in node.args if arg is not operator]
    if random_states.form(node.target) == random_states.RESTORES:
        values = values[1:]
    names = [arg.name for arg in operator._schema.arguments]
    found = []
    for name, value in (*zip(names, values, strict=False), *node.kwargs.items()):
        places = {
            (leaf.device.index or 0) if leaf.device.type == FLAGOS else HOSTS
            for one in pytree.tree_leaves(value)
            for leaf in pytree.tree_leaves(_traced(one))
            if isinstance(leaf, torch.Tensor)
        }
        if len(places) == 1 and places != {index}:
            found.append((name, places.pop()))
    return tuple(found)


def _numbers(node: Node, operator: torch._ops.OpOverload) -> tuple[str, ...]:
    """Numbers in the places of tensors, as in `aten.add.Tensor(x, 1)`: only PyTorch's own operators
    take them there, so ours says that it takes numbers."""
    if node.target is not operator:
        return ()
    taken = operator._schema.arguments
    given = {**dict(zip((a.name for a in taken), node.args, strict=False)), **node.kwargs}
    tensors = (a.name for a in taken if str(a.real_type) == "Tensor")
    return tuple(name for name in tensors if _is_number(_traced(given.get(name))))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | complex | torch.SymInt | torch.SymFloat)


def _traced(value: Any) -> Any:
    """What a node gave when it was traced; anything else is itself."""
    return value.meta.get("val") if isinstance(value, Node) else value


def _call_instead(
    node: Node, operator: torch._ops.OpOverload, other: torch._ops.OpOverload
) -> None:
    if node.target is operator:
        node.target = other
    elif random_states.form(node.target):
        node.target = other
        node.args = tuple(arg for arg in node.args if arg is not operator)
    else:
        node.args = tuple(other if arg is operator else arg for arg in node.args)
    names = schemas.device_arguments(operator)
    positions = [i for i, arg in enumerate(operator._schema.arguments) if arg.name in names]
    node.args = tuple(arg for i, arg in enumerate(node.args) if i not in positions)
    node.kwargs = {name: value for name, value in node.kwargs.items() if name not in names}
