"""Owns: what an operator of ours does: it calls the other one with its arguments on flagos."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_fl import _C
from torch_fl.compile.eager import schemas
from torch_fl.compile.eager.names import HOSTS, Call
from torch_fl.compile.renaming import FLAGOS, Renaming, is_flagos
from torch_fl.plugins import selection


def real(operator: torch._ops.OpOverload, call: Call) -> Callable[..., Any]:
    """Takes and gives the target's tensors."""
    target = selection.current().target or "cpu"
    run = _on_device(operator, call.index)
    order = schemas.arguments(operator)
    places = dict(call.places)

    def to_flagos(value: Any, place: int) -> Any:
        if isinstance(value, torch.Tensor):
            return _C.from_target(value, place) if value.device.type == target else value
        if isinstance(value, torch.device):
            return torch.device(FLAGOS, place) if value.type == target else value
        if isinstance(value, (list, tuple)):
            return type(value)(to_flagos(one, place) for one in value)
        return value

    def move(name: str, value: Any) -> Any:
        place = places.get(name, call.index)
        return value if place == HOSTS else to_flagos(value, place)

    def to_target(value: Any) -> Any:
        return _C.to_target(value) if is_flagos(value) else value

    def kernel(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = _each(order, move, args, kwargs)
        return pytree.tree_map(to_target, run(*args, **kwargs))

    return kernel


def fake(operator: torch._ops.OpOverload, call: Call) -> Callable[..., Any]:
    """What the results are: the operator may know flagos' tensors and not the target's."""
    target = selection.current().target or "cpu"
    run = _on_device(operator, call.index)
    order = schemas.arguments(operator)
    places = dict(call.places)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        # A renaming knows a tensor again: one for each call, and one for each device.
        used = {call.index, *places.values()} - {HOSTS}
        renamings = {place: Renaming(target, FLAGOS, index=place) for place in used}

        def move(name: str, value: Any) -> Any:
            place = places.get(name, call.index)
            return value if place == HOSTS else renamings[place].tree(value)

        args, kwargs = _each(order, move, args, kwargs)
        back = Renaming(FLAGOS, target, index=None if target == "cpu" else True)
        return back.tree(run(*args, **kwargs))

    return kernel


def _on_device(operator: torch._ops.OpOverload, index: int) -> Callable[..., Any]:
    """The other operator, called as ours: it makes its tensors on a flagos device."""
    devices = dict.fromkeys(schemas.device_arguments(operator), torch.device(FLAGOS, index))
    if not devices:
        return operator
    order = schemas.arguments(operator)

    def run(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(order, args, strict=False))
        return schemas.call_by_name(operator, {**given, **kwargs, **devices})

    return run


def _each(
    order: list[str], move: Callable[[str, Any], Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments, each moved by its name."""
    positional = tuple(move(name, value) for name, value in zip(order, args, strict=False))
    return positional, {name: move(name, value) for name, value in kwargs.items()}
