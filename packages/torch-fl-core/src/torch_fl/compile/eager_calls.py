"""Owns: operators that a compiled region calls with flagos tensors, as an eager program would.

In a renamed graph an operator that stays a call gets the target's tensors, and so the target's
kernel. That is wrong for three kinds: operators with a kernel of their own for flagos (a user's),
operators that the configuration routes elsewhere, and on the host those that draw random numbers,
which belong to flagos' generators. Each is called through an operator of ours with the same schema,
which gives its arguments their flagos names again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from torch_fl import _C
from torch_fl.compile import routed
from torch_fl.compile.renaming import FLAGOS, graph_modules, is_on
from torch_fl.plugins import selection

NAMESPACE = "torch_fl_eager"

_OF_PYTORCH = ("aten", "prims", "prim", "inductor", "quantized", "_c10d_functional")

_library: torch.library.Library | None = None
_defined: set[str] = set()


def keep(graph: GraphModule) -> list[str]:
    """Makes calls of a graph on flagos that must stay flagos' own go through operators of ours.
    Returns what `define` needs in another process."""
    kept = []
    elsewhere = routed.names()
    for module in graph_modules(graph):
        for node in module.graph.nodes:
            operator = _called(node)
            if operator is None:
                continue
            device = _device(node)
            if device is None or not _is_flagos_own(operator, elsewhere):
                continue
            name = f"{operator.name()}@{device.index or 0}"
            define([name])
            _call_instead(node, operator, _overload(name))
            kept.append(name)
    return sorted(set(kept))


def define(names: Iterable[str]) -> None:
    """Makes the operators of ours for names that `keep` returned."""
    for name in names:
        if name not in _defined:
            _define(name)
            _defined.add(name)


def _called(node: Node) -> torch._ops.OpOverload | None:
    """The operator that a node calls, itself or through one that stands around it."""
    if node.op != "call_function":
        return None
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        # `auto_functionalized`, around operators that write, and `with_effects`.
        operators = [arg for arg in node.args if isinstance(arg, torch._ops.OpOverload)]
        return operators[0] if operators else None
    return None


def _call_instead(
    node: Node, operator: torch._ops.OpOverload, other: torch._ops.OpOverload
) -> None:
    if node.target is operator:
        node.target = other
    else:
        node.args = tuple(other if arg is operator else arg for arg in node.args)
    names = _device_arguments(operator)
    positions = [i for i, arg in enumerate(operator._schema.arguments) if arg.name in names]
    node.args = tuple(arg for i, arg in enumerate(node.args) if i not in positions)
    node.kwargs = {name: value for name, value in node.kwargs.items() if name not in names}


def _device_arguments(operator: torch._ops.OpOverload) -> list[str]:
    """Where PyTorch's own operators take the device on which they make a tensor. Ours take none:
    each has its device, and a C++ wrapper cannot hand a device to an operator that it calls by
    name."""
    if operator.namespace not in _OF_PYTORCH:
        return []
    return [arg.name for arg in operator._schema.arguments if _is_device(arg)]


def _is_device(argument: torch._C.Argument) -> bool:
    return "Device" in str(argument.real_type)


def _device(node: Node) -> torch.device | None:
    values = [node.meta.get("val"), node.args, node.kwargs]
    for value in pytree.tree_leaves(values):
        found = value.meta.get("val") if isinstance(value, Node) else value
        for leaf in pytree.tree_leaves(found):
            if is_on(leaf, FLAGOS):
                return leaf if isinstance(leaf, torch.device) else leaf.device
    return None


def _is_flagos_own(operator: torch._ops.OpOverload, elsewhere: Collection[str]) -> bool:
    if operator.namespace == NAMESPACE:
        return False
    if operator.name() in elsewhere:
        return True
    if operator.namespace not in _OF_PYTORCH:
        return torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "PrivateUse1")
    on_host = selection.current().target in (None, "cpu")
    return on_host and _is_random(operator)


def _is_random(operator: torch._ops.OpOverload) -> bool:
    return torch.Tag.nondeterministic_seeded in operator.tags or operator.name() in (
        "prims::inductor_seed",
        "prims::inductor_seeds",
    )


def _overload(name: str) -> torch._ops.OpOverload:
    return getattr(getattr(torch.ops, NAMESPACE), _mangled(name)).default


def _mangled(name: str) -> str:
    return name.replace("::", "__").replace(".", "__").replace("@", "__on")


def _define(name: str) -> None:
    global _library
    if _library is None:
        _library = torch.library.Library(NAMESPACE, "DEF")
    qualified, _, index = name.rpartition("@")
    operator = _find(qualified)
    mangled = _mangled(name)
    target = selection.current().target or "cpu"
    here = torch.device(target) if target == "cpu" else torch.device(target, int(index))
    _library.define(mangled + _signature(operator), tags=[*operator.tags])
    _library.impl(mangled, _caller(operator, int(index)), "CompositeExplicitAutograd")
    fake = _on_device(operator, here)
    torch.library.register_fake(f"{NAMESPACE}::{mangled}", fake, lib=_library)


def _signature(operator: torch._ops.OpOverload) -> str:
    text = str(operator._schema)
    text = text[text.index("(") :]
    for name in _device_arguments(operator):
        text = re.sub(rf"(, )?Device\?? {name}(=\w+)?", "", text)
    return text.replace("(, ", "(").replace(", *)", ")").replace("(*)", "()")


def _on_device(operator: torch._ops.OpOverload, device: torch.device) -> Callable[..., Any]:
    """The operator, called as ours: it makes its tensors on `device`."""
    names = _device_arguments(operator)
    if not names:
        return operator
    order = [arg.name for arg in operator._schema.arguments if arg.name not in names]

    def call(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(order, args, strict=False))
        return _by_name(operator, {**given, **kwargs, **dict.fromkeys(names, device)})

    return call


def _by_name(operator: torch._ops.OpOverload, values: dict[str, Any]) -> Any:
    args = [
        values.pop(arg.name)
        for arg in operator._schema.arguments
        if not arg.kwarg_only and arg.name in values
    ]
    return operator(*args, **values)


def _find(qualified: str) -> torch._ops.OpOverload:
    namespace, _, rest = qualified.partition("::")
    base, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")


def _caller(operator: torch._ops.OpOverload, index: int) -> Callable[..., Any]:
    target = selection.current().target or "cpu"
    run = _on_device(operator, torch.device(FLAGOS, index))

    def to_flagos(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.device.type == target:
            return _C.from_target(value, index)
        if isinstance(value, torch.device) and value.type == target:
            return torch.device(FLAGOS, index)
        return value

    def to_target(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.device.type == FLAGOS:
            return _C.to_target(value)
        return value

    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map(to_flagos, (args, kwargs))
        return pytree.tree_map(to_target, run(*args, **kwargs))

    return call
