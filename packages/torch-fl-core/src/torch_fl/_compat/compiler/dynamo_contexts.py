"""Owns: `with torch.flagos.device(index):` and `torch.flagos.amp.autocast` in traced functions.

Reason: Dynamo puts these contexts into the graph as two calls, and knows them by class; one that it
does not know is traced into, and a graph break inside of it has the whole function run as it is,
not compiled at all. Torch 2.13 has a list of devices' contexts, to which ours is added; all others
are compared with the classes that PyTorch has itself, where Dynamo calls a class. Dated 2026-11,
torch 2.11 to 2.14. Held by tests/compile/test_dynamo_contexts.py.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any

import torch

from torch_fl._compat.importing import when_imported

__all__ = ["install"]


def install() -> None:
    """Adds the contexts when Dynamo's modules are imported."""
    when_imported("torch._dynamo.variables.ctx_manager", _register)
    when_imported("torch._dynamo.variables.user_defined", _compare)


def _flagos() -> Any:
    return torch.get_device_module("flagos")


def _index(device: Any, *, optional: bool = True) -> int:
    """The index of a device that is named; -1, which changes nothing, for one without an index:
    compiled code does not know which one will be current."""
    index: int = _flagos()._get_device_index(device, optional=optional)
    named = torch.device(device) if isinstance(device, str) else device
    return -1 if getattr(named, "index", named) is None else index


def _register(module: Any) -> None:
    register = getattr(module, "register_device_context_manager", None)
    if register is None:
        return

    class FlagosDeviceVariable(module.GenericDeviceVariable):  # type: ignore[misc]
        _exchange_fn = staticmethod(_flagos()._exchange_device)
        _maybe_exchange_fn = staticmethod(_flagos()._maybe_exchange_device)
        _get_device_index_fn = staticmethod(_index)

        def module_name(self) -> str:
            return "torch.flagos"

        def python_type(self) -> Any:
            return _flagos().device

    register(_flagos().device, FlagosDeviceVariable)


def _compare(module: Any) -> None:
    variable = module.UserDefinedClassVariable
    others = variable.call_function

    @functools.wraps(others)
    def call_function(self: Any, tx: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        of_device = self.value is _flagos().device and len(args) == 1 and not kwargs
        if of_device and args[0].is_python_constant() and (context := _before_the_list()):
            index = _index(args[0].as_python_constant())
            return context(target_values=[index], initial_values=None)
        if self.value is _flagos().amp.autocast:
            return _autocast(args, kwargs)
        return others(self, tx, args, kwargs)

    variable.call_function = call_function


def _autocast(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`torch.autocast("flagos", ...)`, which Dynamo knows."""
    from torch._dynamo.variables.ctx_manager import AutocastModeVariable

    given = inspect.signature(_flagos().amp.autocast).bind(*args, **kwargs)
    given.apply_defaults()
    create: Any = AutocastModeVariable.create  # (its types are those of instances)
    return create(torch.autocast, ("flagos",), given.arguments)


@functools.cache
def _before_the_list() -> Any:
    """What became `GenericDeviceVariable`, for torch.flagos; None where there is a list."""
    from torch._dynamo.variables import ctx_manager as module

    if hasattr(module, "register_device_context_manager"):
        return None

    class FlagosDeviceVariable(module.ContextWrappingVariable):
        def enter(self, tx: Any) -> Any:
            exchange, back = _flagos()._exchange_device, _flagos()._maybe_exchange_device
            previous = exchange(*self.target_values)
            self.set_cleanup_hook(tx, lambda: back(previous))
            self.proxy = tx.output.create_node("call_function", exchange, (*self.target_values,))
            return module.variables.ConstantVariable.create(None)

        def exit(self, tx: Any, *args: Any) -> Any:
            self.cleanup_assert()
            back = _flagos()._maybe_exchange_device
            tx.output.create_node("call_function", back, (self.proxy,))
            return module.variables.ConstantVariable.create(False)

        def module_name(self) -> str:
            return "torch.flagos"

        def fn_name(self) -> str:
            return "device"

    return FlagosDeviceVariable
