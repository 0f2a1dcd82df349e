"""Owns: what AOTAutograd does by device names: states of generators and of autocast.

Reason: activation checkpointing in a compiled function puts a random operator between
`run_and_save_rng_state` and `run_with_rng_state`, which have kernels for the devices inside
PyTorch only; with compilers that run the graph as it is ("aot_eager") they are called with flagos
tensors. And the check that tracing leaves autocast as it was looks at "cuda" and "cpu" alone. Both
get flagos as one device more. Dated 2026-11, torch 2.11 to 2.14. Held by
tests/compile/test_autograd_contracts.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from torch_fl._compat.importing import when_imported

__all__ = ["install"]


def install() -> None:
    """Adds flagos when the modules are imported."""
    when_imported("torch._prims.rng_prims", _add_states_of_generators)
    when_imported("torch._functorch._aot_autograd.utils", _add_state_of_autocast)


def _add_state_of_autocast(module: Any) -> None:
    others = module._get_autocast_states

    @functools.wraps(others)
    def states() -> list[Any]:
        own = [torch.is_autocast_enabled("flagos"), torch.get_autocast_dtype("flagos")]
        return [*others(), *own]

    module._get_autocast_states = states


def _add_states_of_generators(module: Any) -> None:
    def save(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        state = torch.get_device_module("flagos").get_rng_state(_index(args, kwargs))
        return state, op(*args, **kwargs)

    def restore(state: torch.Tensor, op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        index = _index(args, kwargs)
        now = torch.get_device_module("flagos").get_rng_state(index)
        torch.get_device_module("flagos").set_rng_state(state, index)
        try:
            return op(*args, **kwargs)
        finally:
            torch.get_device_module("flagos").set_rng_state(now, index)

    # Fake tensors: nothing is drawn, and a state is a state.
    _add(module, module.run_and_save_rng_state, save, fake=save)
    _add(module, module.run_with_rng_state, restore, fake=lambda state, op, *a, **k: op(*a, **k))


def _add(module: Any, operator: Any, own: Callable[..., Any], fake: Callable[..., Any]) -> None:
    operator.py_impl(torch._C.DispatchKey.PrivateUse1)(own)
    _choose(operator.py_kernels, torch._C.DispatchKey.BackendSelect, own)
    operator._dispatch_cache.clear()
    from torch._higher_order_ops import utils
    from torch._subclasses.fake_tensor import FakeTensorMode

    registered = getattr(utils, "registered_hop_fake_fns", {})
    if operator in registered:
        _choose(registered, operator, fake)
    elif FakeTensorMode in operator.python_key_table:
        _choose(
            operator.python_key_table,
            FakeTensorMode,
            lambda mode, *a, **k: _under(mode, fake, a, k),
        )


def _under(mode: Any, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    with mode:
        return function(*args, **kwargs)


def _choose(table: dict[Any, Callable[..., Any]], key: Any, own: Callable[..., Any]) -> None:
    """The table's function, or `own` where flagos is concerned."""
    others = table[key]

    @functools.wraps(others)
    def choose(*args: Any, **kwargs: Any) -> Any:
        if _on_flagos(args, kwargs):
            return own(*args, **kwargs)
        return others(*args, **kwargs)

    table[key] = choose


def _devices(args: Any, kwargs: Any) -> list[torch.device]:
    named = kwargs.get("device")
    if named is not None:
        return [torch.device(named)]
    placed = [arg for arg in args if isinstance(arg, torch.device)]
    return placed or [arg.device for arg in args if isinstance(arg, torch.Tensor)]


def _on_flagos(args: Any, kwargs: Any) -> bool:
    return any(device.type == "flagos" for device in _devices(args, kwargs))


def _index(args: Any, kwargs: Any) -> int:
    for device in _devices(args, kwargs):
        if device.type == "flagos" and device.index is not None:
            return device.index
    return int(torch.get_device_module("flagos").current_device())
