"""Owns: calls of torch.flagos in traced functions: devices, streams, events, what is known of them.

Reason: Dynamo has lists of the functions of torch.cuda, and of each other device inside PyTorch,
that it takes as constants, puts into the graph or handles itself; the functions of a device from
outside are traced into, down to C++ functions that it cannot follow, and each is a graph break.
So is `tensor.is_flagos` of what is computed, for which each device has a method.
Those of torch.flagos are added to the lists by name, with the treatment that torch.cuda's and
torch.accelerator's have. dynamo_contexts.py has `with torch.flagos.device(...)`. Dated 2026-11,
torch 2.11 to 2.14. Held by tests/compile/test_dynamo_contracts.py.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from torch_fl._compat.importing import when_imported

__all__ = ["install"]

# As long as the process lives.
CONSTANT = (
    "device_count",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "is_available",
    "is_bf16_supported",
)
# Guarded: another answer makes another graph.
GUARDED = ("current_device", "is_initialized")
# What Dynamo does with torch.accelerator's functions of these names, it does with ours.
AS_ACCELERATOR = ("current_stream", "synchronize")
# Calls in the graph.
IN_GRAPH = ("stream",)
# Calls in the graph that are made while it is traced too, and give a number. Guarded by the device
# that was current.
EXCHANGES = ("_exchange_device", "_maybe_exchange_device")


def install() -> None:
    """Adds _flagos()' functions when Dynamo's modules are imported."""
    when_imported("torch._dynamo.trace_rules", _add_rules)
    when_imported("torch._dynamo.utils", _add_constants)
    when_imported("torch._dynamo.variables.torch", _add_handlers)
    when_imported("torch._dynamo.variables.user_defined", _add_classes)
    when_imported("torch._dynamo.variables.tensor", _add_attributes)


def _flagos() -> Any:
    return torch.get_device_module("flagos")


def _add_rules(rules: Any) -> None:
    names = (*CONSTANT, *GUARDED, *AS_ACCELERATOR, *IN_GRAPH, *EXCHANGES)
    in_graph = rules.TorchInGraphFunctionVariable
    rules.torch_name_rule_map.append({f"torch.flagos.{name}": in_graph for name in names})


def _add_constants(module: Any) -> None:
    module.common_constant_types.add(_flagos().DeviceProperties)


def _add_handlers(module: Any) -> None:
    for name in CONSTANT:
        module.constant_fold_functions[getattr(_flagos(), name)] = None
    for name in GUARDED:
        module.constant_fold_functions[getattr(_flagos(), name)] = None
        module.constant_fold_functions_need_guards[getattr(_flagos(), name)] = None
    variable = module.TorchInGraphFunctionVariable
    others = variable._get_handlers  # makes its table when it is first asked, and keeps it

    @functools.cache
    def handlers() -> dict[Any, Any]:
        table = dict(others())
        for name in AS_ACCELERATOR:
            known = table.get(getattr(torch.accelerator, name))
            if known is not None:
                table[getattr(_flagos(), name)] = known
        for name in EXCHANGES:
            table[getattr(_flagos(), name)] = _exchange
        return table

    variable._get_handlers = staticmethod(handlers)


def _exchange(self: Any, tx: Any, device: Any) -> Any:
    """Contexts that Dynamo traces into, such as `torch.flagos.device_of`, choose a device so. When
    tracing ends, however it does, the device is the one that it was."""
    from torch._dynamo import source
    from torch._dynamo.guards import GuardBuilder, install_guard
    from torch._dynamo.variables import ConstantVariable

    module = source.AttrSource(source.ImportSource("torch"), "flagos")
    current = source.CallFunctionNoArgsSource(source.AttrSource(module, "current_device"))
    install_guard(current.make_guard(GuardBuilder.EQUALS_MATCH))
    index = device.as_python_constant()
    previous = self.value(index)
    tx.output.add_cleanup_hook(lambda: _flagos().set_device(previous))
    tx.output.create_node("call_function", self.value, (index,), {})
    return ConstantVariable.create(previous)


def _add_classes(module: Any) -> None:
    variable = module.UserDefinedClassVariable
    others = variable._in_graph_classes

    @functools.cache
    def classes() -> set[type]:
        return {*others(), _flagos().Stream, _flagos().Event}

    variable._in_graph_classes = staticmethod(classes)


def _add_attributes(module: Any) -> None:
    constant = module.ConstantVariable

    def is_flagos(self: Any, tx: Any) -> Any:
        return None if self.device is None else constant.create(self.device.type == "flagos")

    module.TensorVariable.method_attr_is_flagos = is_flagos
