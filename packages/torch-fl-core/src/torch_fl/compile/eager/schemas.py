"""Owns: what an operator of ours takes: the other's arguments, without devices."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch

from torch_fl.compile.eager.names import OF_PYTORCH


def device_arguments(operator: torch._ops.OpOverload) -> list[str]:
    """Where PyTorch's own operators take the device on which they make a tensor. Ours take none:
    each has its device, and a C++ wrapper cannot hand a device to an operator that it calls by
    name."""
    if operator.namespace not in OF_PYTORCH:
        return []
    return [arg.name for arg in operator._schema.arguments if "Device" in str(arg.real_type)]


def arguments(operator: torch._ops.OpOverload) -> list[str]:
    """The arguments of ours, in their order."""
    devices = device_arguments(operator)
    return [arg.name for arg in operator._schema.arguments if arg.name not in devices]


def signature(operator: torch._ops.OpOverload, numbers: Iterable[str]) -> str:
    """The schema of ours, without a name. `numbers`: tensors that are numbers."""
    text = str(operator._schema)
    text = text[text.index("(") :]
    for name in numbers:
        text = re.sub(rf"Tensor {name}\b", f"Scalar {name}", text)
    for name in device_arguments(operator):
        text = re.sub(rf"(, )?Device\?? {name}(=\w+)?", "", text)
    return text.replace("(, ", "(").replace(", *)", ")").replace("(*)", "()")


def call_by_name(operator: torch._ops.OpOverload, values: dict[str, Any]) -> Any:
    """Calls the other one, whose arguments PyTorch takes by name only where it has to."""
    args = [
        values.pop(arg.name)
        for arg in operator._schema.arguments
        if not arg.kwarg_only and arg.name in values
    ]
    return operator(*args, **values)
