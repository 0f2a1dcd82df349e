"""Owns: streams in graphs of the host, where they have no meaning.

Work on the host is complete when the call returns that gave it, whatever the stream. Inductor's
code for CPUs knows no streams either. What is left of them is what a program can see afterwards:
that an event was recorded.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torch_fl.compile.renaming import graph_modules

_SEEN_AFTERWARDS = "streams::record_event"


def forget(graph: GraphModule) -> None:
    """Takes the calls of streams out of a graph, and the marks of the streams that nodes run on."""
    for module in graph_modules(graph):
        changed = False
        for node in list(module.graph.nodes):
            custom = node.meta.get("custom")
            if isinstance(custom, dict) and "stream" in custom:
                node.meta["custom"] = {k: v for k, v in custom.items() if k != "stream"}
            if node.op == "call_function":
                changed = _forgotten(module, node) or changed
        if changed:
            module.graph.eliminate_dead_code()
            module.recompile()


def _forgotten(module: GraphModule, node: Node) -> bool:
    if _is_streams(node.target):
        if _name(node.target) != _SEEN_AFTERWARDS and not node.users:
            module.graph.erase_node(node)
            return True
        return False
    if not _is_ordering(node.target):
        return False
    # A call of streams, between the values that must come before it and those that come after.
    inner = _subgraph(module, node)
    calls = [one for one in inner.graph.nodes if one.op == "call_function"] if inner else []
    if not calls or not all(_is_streams(call.target) for call in calls):
        return False
    values = node.args[2:]
    for user in list(node.users):
        if user.target is operator.getitem and user.args[0] is node:
            position = user.args[1]
            if isinstance(position, int) and position >= 1:
                user.replace_all_uses_with(values[position - 1])  # type: ignore[arg-type]
        else:
            user.args = tuple(_without(arg, node) for arg in user.args)
    with module.graph.inserting_before(node):
        for call in calls:
            if _name(call.target) == _SEEN_AFTERWARDS:
                module.graph.call_function(call.target, call.args).meta["val"] = None
    for user in list(node.users):
        module.graph.erase_node(user)
    module.graph.erase_node(node)
    return True


def _without(argument: Any, node: Node) -> Any:
    if isinstance(argument, (tuple, list)):
        return tuple(one for one in argument if one is not node)
    return argument


def _is_ordering(target: Any) -> bool:
    return isinstance(target, torch._ops.HigherOrderOperator) and target.name() == "control_deps"


def _is_streams(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target.namespace == "streams"


def _name(target: Any) -> str:
    return str(target.name())


def _subgraph(module: GraphModule, node: Node) -> GraphModule | None:
    inner = node.args[1]
    if isinstance(inner, Node) and inner.op == "get_attr":
        found = getattr(module, str(inner.target), None)
        return found if isinstance(found, GraphModule) else None
    return None
