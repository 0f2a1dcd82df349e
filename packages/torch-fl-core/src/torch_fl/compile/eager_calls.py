"""Owns: operators that a compiled region calls with flagos tensors, as an eager program would.

In a renamed graph an operator that stays a call gets the target's tensors, and so the target's
kernel. That is wrong for three kinds: users' operators with a kernel for flagos or for all devices,
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
from torch_fl._compat.compiler import inductor
from torch_fl.compile import random_states, routed
from torch_fl.compile.renaming import FLAGOS, Renaming, graph_modules, is_on
from torch_fl.plugins import selection

NAMESPACE = "torch_fl_eager"

# Namespaces of operators that Inductor knows, or that PyTorch has for every device.
_OF_PYTORCH = frozenset(
    (
        *("aten", "prim", "prims", "rngprims", "debugprims", "inductor", "streams"),
        *("quantized", "quantized_decomposed", "_quantized", "mkldnn", "onednn"),
        *("c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd"),
        *("symm_mem", "fsdp"),
    )
)

PRIVATE_KEY = "PrivateUse1"

# Where users' operators have the kernels that flagos tensors take.
_KEYS = (PRIVATE_KEY, "CompositeExplicitAutograd")

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
            form = random_states.form(node.target)
            places = _other_places(node, operator, device.index or 0)
            numbers = _numbers(node, operator)
            name = f"{operator.name()}{numbers}@{device.index or 0}{places}{form}"
            define([name])
            _call_instead(node, operator, _overload(name))
            kept.append(name)
    return sorted(set(kept))


def users_operators() -> set[str]:
    """All operators of users that would stay flagos' own."""
    return {
        name
        for key in _KEYS
        for name in torch._C._dispatch_get_registrations_for_dispatch_key(key)
        if name.partition("::")[0] not in (*_OF_PYTORCH, NAMESPACE)
    }


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
    elif random_states.form(node.target):
        node.target = other
        node.args = tuple(arg for arg in node.args if arg is not operator)
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


HOSTS = -1  # in place of a flagos device's index: a tensor that is none of flagos'


def _other_places(node: Node, operator: torch._ops.OpOverload, index: int) -> str:
    """The arguments that are elsewhere than on flagos device `index`, such as "~boxes=-1,to=1": in
    a renamed graph nothing tells them apart."""
    values = [arg for arg in node.args if arg is not operator]
    if random_states.form(node.target) == random_states.RESTORES:
        values = values[1:]
    names = [arg.name for arg in operator._schema.arguments]
    found = []
    for name, value in (*zip(names, values, strict=False), *node.kwargs.items()):
        places = {
            (leaf.device.index or 0) if leaf.device.type == FLAGOS else HOSTS
            for one in pytree.tree_leaves(value)
            for leaf in pytree.tree_leaves(one.meta.get("val") if isinstance(one, Node) else one)
            if isinstance(leaf, torch.Tensor)
        }
        if len(places) == 1 and places != {index}:
            found.append(f"{name}={places.pop()}")
    return "~" + ",".join(sorted(found)) if found else ""


def _numbers(node: Node, operator: torch._ops.OpOverload) -> str:
    """Numbers in the places of tensors, as in `aten.add.Tensor(x, 1)`: only PyTorch's own operators
    take them there, so ours says that it takes numbers. "#other" for that one."""
    if node.target is not operator:
        return ""
    given = {**dict(zip(_argument_names(operator), node.args, strict=False)), **node.kwargs}
    tensors = (a for a in operator._schema.arguments if str(a.real_type) == "Tensor")
    return "".join(f"#{a.name}" for a in tensors if _is_number(given.get(a.name)))


def _argument_names(operator: torch._ops.OpOverload) -> list[str]:
    return [argument.name for argument in operator._schema.arguments]


def _is_number(value: Any) -> bool:
    if isinstance(value, Node):
        value = value.meta.get("val")
    return isinstance(value, int | float | complex | torch.SymInt | torch.SymFloat)


def _is_flagos_own(operator: torch._ops.OpOverload, elsewhere: Collection[str]) -> bool:
    if operator.namespace == NAMESPACE:
        return False
    if operator.name() in elsewhere:
        return True
    if operator.namespace not in _OF_PYTORCH:
        return any(
            torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), key) for key in _KEYS
        )
    on_host = selection.current().target in (None, "cpu")
    return on_host and (_is_random(operator) or _is_unknown_to_cpus(operator))


def _is_unknown_to_cpus(operator: torch._ops.OpOverload) -> bool:
    """PyTorch's own for accelerators, such as fused cells of recurrent layers."""
    has_kernel = torch._C._dispatch_has_computed_kernel_for_dispatch_key
    name = operator.name()
    is_pytorchs = operator.namespace == "aten"
    return is_pytorchs and has_kernel(name, PRIVATE_KEY) and not has_kernel(name, "CPU")


def _is_random(operator: torch._ops.OpOverload) -> bool:
    return torch.Tag.nondeterministic_seeded in operator.tags or operator.name() in (
        "prims::inductor_seed",
        "prims::inductor_seeds",
    )


def _overload(name: str) -> torch._ops.OpOverload:
    overload: torch._ops.OpOverload = getattr(getattr(torch.ops, NAMESPACE), _mangled(name)).default
    return overload


def _mangled(name: str) -> str:
    return re.sub(r"\W", "_", name.replace("::", "__").replace("@", "__on").replace("=-", "_no"))


def _define(name: str) -> None:
    global _library
    if _library is None:
        _library = torch.library.Library(NAMESPACE, "DEF")
    qualified, _, rest = name.rpartition("@")
    rest, plus, form = rest.partition("+")
    form = plus + form
    number, _, others = rest.partition("~")
    index = int(number)
    places = {
        one: int(place) for one, _, place in (o.partition("=") for o in others.split(",") if o)
    }
    qualified, *numbers = qualified.split("#")
    operator = _find(qualified)
    mangled = _mangled(name)
    call = _caller(operator, index, places)
    fake = _fake(operator, index, places)
    arguments = random_states.signature(_signature(operator, numbers), form)
    _library.define(mangled + arguments, tags=[*operator.tags])
    _library.impl(mangled, random_states.around(call, form, index), "CompositeExplicitAutograd")
    fake = random_states.fake_around(fake, form, index)
    torch.library.register_fake(f"{NAMESPACE}::{mangled}", fake, lib=_library)


def _signature(operator: torch._ops.OpOverload, numbers: Iterable[str]) -> str:
    text = str(operator._schema)
    text = text[text.index("(") :]
    for name in numbers:
        text = re.sub(rf"Tensor {name}\b", f"Scalar {name}", text)
    for name in _device_arguments(operator):
        text = re.sub(rf"(, )?Device\?? {name}(=\w+)?", "", text)
    return text.replace("(, ", "(").replace(", *)", ")").replace("(*)", "()")


def _names(operator: torch._ops.OpOverload) -> list[str]:
    """The arguments of ours, in their order."""
    devices = _device_arguments(operator)
    return [arg.name for arg in operator._schema.arguments if arg.name not in devices]


def _on_device(operator: torch._ops.OpOverload, device: torch.device) -> Callable[..., Any]:
    """The operator, called as ours: it makes its tensors on `device`."""
    devices = _device_arguments(operator)
    if not devices:
        return operator
    order = _names(operator)

    def call(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(order, args, strict=False))
        return _by_name(operator, {**given, **kwargs, **dict.fromkeys(devices, device)})

    return call


def _fake(
    operator: torch._ops.OpOverload, index: int, places: dict[str, int]
) -> Callable[..., Any]:
    """What the results are: the operator may know flagos' tensors and not the target's."""
    target = selection.current().target or "cpu"
    run = _on_device(operator, torch.device(FLAGOS, index))
    order = _names(operator)

    def call(*args: Any, **kwargs: Any) -> Any:
        # A renaming knows a tensor again: one for each call, and one for each device.
        used = {index, *places.values()} - {HOSTS}
        renamings = {place: Renaming(target, FLAGOS, index=place) for place in used}

        def move(name: str, value: Any) -> Any:
            place = places.get(name, index)
            return value if place == HOSTS else renamings[place].tree(value)

        args, kwargs = _each(order, move, args, kwargs)
        back = Renaming(FLAGOS, target, index=None if target == "cpu" else True)
        return back.tree(run(*args, **kwargs))

    return call


def _each(
    order: list[str], move: Callable[[str, Any], Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments, each moved by its name."""
    positional = tuple(move(name, value) for name, value in zip(order, args, strict=False))
    return positional, {name: move(name, value) for name, value in kwargs.items()}


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
    if namespace == "prims":
        inductor.load_operators()
    packet = getattr(getattr(torch.ops, namespace), base, None)
    if packet is None:
        raise RuntimeError(
            f"Compiled code calls the operator {qualified!r}, which this process does not have. "
            "Import what registers it before the code is loaded."
        )
    found: torch._ops.OpOverload = getattr(packet, overload or "default")
    return found


def _caller(
    operator: torch._ops.OpOverload, index: int, places: dict[str, int]
) -> Callable[..., Any]:
    target = selection.current().target or "cpu"
    run = _on_device(operator, torch.device(FLAGOS, index))
    order = _names(operator)

    def to_flagos(value: Any, place: int) -> Any:
        if isinstance(value, torch.Tensor):
            return _C.from_target(value, place) if value.device.type == target else value
        if isinstance(value, torch.device):
            return torch.device(FLAGOS, place) if value.type == target else value
        if isinstance(value, (list, tuple)):
            return type(value)(to_flagos(one, place) for one in value)
        return value

    def move(name: str, value: Any) -> Any:
        place = places.get(name, index)
        return value if place == HOSTS else to_flagos(value, place)

    def to_target(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.device.type == FLAGOS:
            return _C.to_target(value)
        return value

    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = _each(order, move, args, kwargs)
        return pytree.tree_map(to_target, run(*args, **kwargs))

    return call
