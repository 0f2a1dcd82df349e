"""Owns: functions of PyTorch's that ask traced tensors for the device by name, such as some
decompositions: answered in the target's name where the device is flagos.

So what is traced is what a graph of the target's own would be. Only the names are other ones: what
goes in, what comes out and what stands in the graph is flagos' again afterwards.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_fl._compat.compiler.decompositions import Tracer
from torch_fl._compat.compiler.fake_tensors import FakeTensor
from torch_fl.compile import target
from torch_fl.compile.regions import to_target
from torch_fl.compile.renaming import FLAGOS, Renaming


def target_type() -> str:
    """The type of the device whose results flagos gives."""
    if target.is_triton_device():
        return FLAGOS
    return to_target().device(torch.device(FLAGOS)).type


def on_target(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which sees flagos tensors that are traced as the target's. Those of several
    devices stay as they are: which one a result is on could not be told."""

    @functools.wraps(function)
    def renamed(*args: Any, **kwargs: Any) -> Any:
        device = _device((args, kwargs))
        if device is None or target.is_triton_device():
            return function(*args, **kwargs)
        there = to_target()
        back = Renaming(there.device(device).type, FLAGOS, index=device.index or 0)
        tracer = Tracer()
        given: dict[int, torch.Tensor] = {}

        def enter(value: Any) -> Any:
            other = there.value(value)
            if isinstance(value, torch.Tensor):
                given[id(other)] = value
                if other is not value:
                    tracer.stands_for(other, value)
            return other

        def leave(value: Any) -> Any:
            if id(value) in given:
                return given[id(value)]
            other = back.value(value)
            if isinstance(value, torch.Tensor) and other is not value:
                tracer.stands_for(other, value)
            return other

        renamed_args, renamed_kwargs = pytree.tree_map(enter, (args, kwargs))
        result = function(*renamed_args, **renamed_kwargs)
        for node in tracer.new_nodes():
            back.node(node)
        return pytree.tree_map(leave, result)

    return renamed


def _device(values: Any) -> torch.device | None:
    """The flagos device that all tensors are on, which are traced; None where they are not."""
    tensors = [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]
    devices = {tensor.device for tensor in tensors if not _is_number(tensor)}
    if len(devices) != 1 or not all(isinstance(tensor, FakeTensor) for tensor in tensors):
        return None
    (device,) = devices
    return device if device.type == FLAGOS else None


def _is_number(tensor: torch.Tensor) -> bool:
    """Such tensors may be on the CPU whatever the device of the others."""
    return tensor.dim() == 0 and tensor.device.type == "cpu"
