"""Owns: the suite of what operators must refuse: ``error_inputs_func`` of ``op_db``.

Type and text of the error must be stock CPU's, with the device's name in the place of "cpu".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import torch

from ..harness.cases import Pass, Suite
from . import opinfo


def _load() -> Mapping[str, Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    sparse = [op for op in op_db if op.error_inputs_sparse_func is not None]
    dense = [op for op in op_db if op.error_inputs_func is not None]
    return {op.full_name: op for op in (*dense, *sparse)}


def _dense(op: Any) -> Iterable[Any]:
    return op.error_inputs_func(op, "cpu") if op.error_inputs_func is not None else ()


def _sparse(op: Any) -> Iterable[Any]:
    if op.error_inputs_sparse_func is None:
        return
    layouts = (
        torch.sparse_coo,
        torch.sparse_csr,
        torch.sparse_csc,
        torch.sparse_bsr,
        torch.sparse_bsc,
    )
    for layout in layouts:
        yield from op.error_inputs_sparse_func(op, "cpu", layout)


# The error inputs bring their own dtypes, so each pass runs once.
_ONCE: Final = (torch.float32,)

SUITE: Final = Suite(
    name="error_inputs",
    about="what op_db's operators must refuse: type and text of the error",
    passes=(
        Pass("dense", _ONCE, opinfo.errors(_dense), "strided inputs", True, glance=4, selfcheck=4),
        Pass("sparse", _ONCE, opinfo.errors(_sparse), "sparse inputs", any_dtype=True),
    ),
    load=_load,
    wrong=(
        "cat",
        "convolution",
        "sub.Tensor",
        "avg_pool2d",
        "max_pool2d_with_indices",
        "adaptive_max_pool2d",
        "max_unpool2d",
    ),
    wrong_entries=10,
)
