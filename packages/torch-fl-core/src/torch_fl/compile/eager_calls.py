"""Owns: operators that a compiled region calls with flagos tensors, as an eager program would.

In a renamed graph an operator that stays a call gets the target's tensors, and so the target's
kernel. That is wrong for three kinds: operators with a kernel of their own for flagos (a user's),
operators that the configuration routes elsewhere, and on the host those that draw random numbers,
which belong to flagos' generators. Each is called through an operator of ours with the same schema,
which gives its arguments their flagos names again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from torch_fl import _C
from torch_fl.compile.renaming import FLAGOS, graph_modules, is_on
from torch_fl.plugins import selection

NAMESPACE = "torch_fl_eager"

_library: torch.library.Library | None = None
_defined: set[str] = set()


def keep(graph: GraphModule) -> list[str]:
    """Makes calls of a graph on flagos that must stay flagos' own go through operators of ours.
    Returns what `define` needs in another process."""
    kept = []
    for module in graph_modules(graph):
        for node in module.graph.nodes:
            operator = node.target
            if node.op != "call_function" or not isinstance(operator, torch._ops.OpOverload):
                continue
            device = _device(node)
            if device is None or not _is_flagos_own(operator):
                continue
            name = f"{operator.name()}@{device.index or 0}"
            define([name])
            node.target = _overload(name)
            kept.append(name)
    return sorted(set(kept))


def define(names: Iterable[str]) -> None:
    """Makes the operators of ours for names that `keep` returned."""
    for name in names:
        if name not in _defined:
            _define(name)
            _defined.add(name)


def _device(node: Node) -> torch.device | None:
    values = [node.meta.get("val"), node.args, node.kwargs]
    for value in pytree.tree_leaves(values):
        found = value.meta.get("val") if isinstance(value, Node) else value
        for leaf in pytree.tree_leaves(found):
            if is_on(leaf, FLAGOS):
                return leaf if isinstance(leaf, torch.device) else leaf.device
    return None


def _is_flagos_own(operator: torch._ops.OpOverload) -> bool:
    if operator.namespace == NAMESPACE:
        return False
    if operator.namespace not in ("aten", "prims", "prim", "inductor", "quantized", "_c10d_functional"):
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
    schema = str(operator._schema)
    arguments = schema[schema.index("(") :]
    mangled = _mangled(name)
    _library.define(mangled + arguments, tags=[*operator.tags])
    _library.impl(mangled, _caller(operator, int(index)), "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{mangled}", operator, lib=_library)


def _find(qualified: str) -> torch._ops.OpOverload:
    namespace, _, rest = qualified.partition("::")
    base, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")


def _caller(operator: torch._ops.OpOverload, index: int) -> Callable[..., Any]:
    target = selection.current().target or "cpu"

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
        return pytree.tree_map(to_target, operator(*args, **kwargs))

    return call
