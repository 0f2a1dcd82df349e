"""Owns: the suite of PyTorch's references in Python, ``python_ref_db``.

The references compose operators and ask tensors what they are much more often than the operators
themselves do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import torch

from ..harness.cases import Pass, Suite
from . import opinfo


def _load() -> Mapping[str, Any]:
    from torch.testing._internal.common_methods_invocations import python_ref_db

    return {op.full_name: op for op in python_ref_db}


def _errors(op: Any) -> Iterable[Any]:
    return op.error_inputs_func(op, "cpu") if op.error_inputs_func is not None else ()


_REST: Final = (
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex64,
)

SUITE: Final = Suite(
    name="python_ref_db",
    about="PyTorch's references in Python",
    passes=(
        Pass(
            "forward",
            (torch.float32,),
            opinfo.forward,
            "float32, or what the reference has",
            any_dtype=True,
            ci=12,
            glance=2,
            selfcheck=3,
        ),
        Pass("dtypes", _REST, opinfo.forward, "other dtypes", ci=2),
        Pass("errors", (torch.float32,), opinfo.errors(_errors), "what they refuse", True, ci=6),
    ),
    load=_load,
    wrong=("add.Tensor", "mul.Tensor", "sub.Tensor", "div.Tensor"),
    wrong_entries=60,
)
