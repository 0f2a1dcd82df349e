"""Owns: Inductor's table of decompositions, and what a tracer knows of the tensors that go into
one.

Reason: autograd is traced with flagos tensors, and a few decompositions ask for the device by name:
how a product of one row is computed, whether a bias' gradient is a sum of its own, whether
masked_scatter is written out (an error for a device without a code generator). They are wrapped
where the table is given, and answered in the target's name; a tensor under another name has to be
known to the tracer as the one that it stands for. Dated 2026-11, torch 2.11 to 2.14. Held by
tests/compile/test_decompositions.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Protocol

import torch
from torch.fx import Node

from torch_fl._compat.importing import when_imported

__all__ = ["ASKING", "Decompositions", "Tracer", "install"]

ASKING = frozenset(
    (
        *("mm", "bmm", "addmm", "convolution_backward", "native_group_norm"),
        *("masked_scatter", "index_reduce", "grid_sampler_2d", "log_sigmoid_forward"),
    )
)
"""The operators whose decompositions ask for the device."""


class Decompositions(Protocol):
    """torch_fl.compile.target_names."""

    def on_target(self, decomposition: Callable[..., Any]) -> Callable[..., Any]:
        """The decomposition, which sees the target's tensors in flagos' place."""


def install(decompositions: Callable[[], Decompositions]) -> None:
    """Wraps the table's function when it is imported."""
    change = functools.partial(_change, decompositions)
    when_imported("torch._inductor.decomposition", change)
    when_imported("torch._inductor.compile_fx", change)  # has a name of its own for it


def _change(decompositions: Callable[[], Decompositions], module: ModuleType) -> None:
    select: Any = module.select_decomp_table
    if getattr(select, "_of_torch_fl", False):
        return

    @functools.wraps(select)
    def select_decomp_table() -> dict[Any, Callable[..., Any]]:
        table = select()
        asking = {
            operator: decompositions().on_target(decomposition)
            for operator, decomposition in table.items()
            if getattr(operator, "namespace", "") == "aten" and _packet(operator) in ASKING
        }
        return {**table, **asking}

    select_decomp_table._of_torch_fl = True  # type: ignore[attr-defined]
    module.select_decomp_table = select_decomp_table  # type: ignore[attr-defined]


def _packet(operator: torch._ops.OpOverload) -> str:
    return operator._schema.name.partition("::")[2]


class Tracer:
    """The graph that is being traced, if one is, and what it knows of tensors."""

    def __init__(self) -> None:
        from torch.fx.experimental import proxy_tensor

        mode = proxy_tensor.get_proxy_mode()
        self._tracer: Any = None if mode is None else mode.tracer
        self._last = None if mode is None else self._root.prev
        self._get, self._set = proxy_tensor.get_proxy_slot, proxy_tensor.set_proxy_slot

    @property
    def _root(self) -> Node:
        root: Node = self._tracer.graph._root
        return root

    def stands_for(self, tensor: torch.Tensor, other: torch.Tensor) -> None:
        """From here on `tensor` is in the graph what `other` is."""
        if self._tracer is None:
            return
        proxy = self._get(other, self._tracer, None)
        if proxy is not None:
            self._set(tensor, self._tracer, proxy)

    def new_nodes(self) -> Iterator[Node]:
        """The nodes that have been made since this began."""
        if self._last is None:
            return
        node = self._last.next
        while node is not self._root:
            yield node
            node = node.next
