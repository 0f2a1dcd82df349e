"""Owns: the calls of a graph that go through operators of ours."""

from __future__ import annotations

from collections.abc import Mapping
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
            given = _given(node, operator)
            if device is None or not choice.is_flagos_own(operator, given, elsewhere):
                continue
            index = device.index or 0
            call = Call(
                operator.name(),
                index,
                numbers=_numbers(operator, given) if node.target is operator else (),
                places=_other_places(given, index),
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


def _first(node: Node, operator: torch._ops.OpOverload) -> int:
    """Where the operator's arguments begin: what stands around it has its own before them, and the
    operator as the last of these."""
    return next((i + 1 for i, arg in enumerate(node.args) if arg is operator), 0)


def _given(node: Node, operator: torch._ops.OpOverload) -> dict[str, Any]:
    """The operator's arguments by name, as far as the node gives them."""
    values = node.args[_first(node, operator) :]
    names = (argument.name for argument in operator._schema.arguments)
    return {**dict(zip(names, values, strict=False)), **node.kwargs}


def _other_places(given: Mapping[str, Any], index: int) -> tuple[tuple[str, int], ...]:
    """The arguments that are elsewhere than on flagos device `index`: in a renamed graph nothing
    tells them apart."""
    found = []
    for name, value in given.items():
        places = {
            (leaf.device.index or 0) if leaf.device.type == FLAGOS else HOSTS
            for one in pytree.tree_leaves(value)
            for leaf in pytree.tree_leaves(_traced(one))
            if isinstance(leaf, torch.Tensor)
        }
        if len(places) == 1 and places != {index}:
            found.append((name, places.pop()))
    return tuple(found)


def _numbers(operator: torch._ops.OpOverload, given: Mapping[str, Any]) -> tuple[str, ...]:
    """Numbers in the places of tensors, as in `aten.add.Tensor(x, 1)`: only PyTorch's own operators
    take them there, so ours says that it takes numbers."""
    tensors = (a.name for a in operator._schema.arguments if str(a.real_type) == "Tensor")
    return tuple(name for name in tensors if _is_number(_traced(given.get(name))))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | complex | torch.SymInt | torch.SymFloat)


def _traced(value: Any) -> Any:
    """What a node gave when it was traced; anything else is itself."""
    return value.meta.get("val") if isinstance(value, Node) else value


def _call_instead(
    node: Node, operator: torch._ops.OpOverload, other: torch._ops.OpOverload
) -> None:
    first = _first(node, operator)
    around, given = node.args[:first], node.args[first:]
    if node.target is operator or random_states.form(node.target):
        node.target = other
        around = tuple(arg for arg in around if arg is not operator)
    else:
        around = tuple(other if arg is operator else arg for arg in around)
    names = schemas.device_arguments(operator)
    arguments = zip(operator._schema.arguments, given, strict=False)
    node.args = (*around, *(value for argument, value in arguments if argument.name not in names))
    node.kwargs = {name: value for name, value in node.kwargs.items() if name not in names}
