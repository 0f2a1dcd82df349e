"""Owns: the suite of PyTorch's operator database, ``op_db``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

from ..harness.cases import ALL, Pass, Suite
from . import gradients, opinfo, outs

_FLOAT32: Final = (torch.float32,)
_FLOAT64: Final = (torch.float64,)
_OTHERS: Final = (
    torch.float16,
    torch.float64,
    torch.complex32,
    torch.complex128,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.uint16,
    torch.uint32,
    torch.uint64,
)


def _load() -> Mapping[str, Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return {op.full_name: op for op in op_db}


# ``ci`` has all float32 samples, because they are cheap; of the passes that multiply them (three
# out= each, forward and gradients) the first few.
_PASSES: Final = (
    Pass(
        "forward",
        _FLOAT32,
        opinfo.forward,
        "float32, or what the operator has",
        any_dtype=True,
        glance=3,
        selfcheck=3,
    ),
    Pass("grad", _FLOAT32, gradients.backward, "float32, gradients", ci=30, glance=2, selfcheck=3),
    Pass("bfloat16", (torch.bfloat16,), opinfo.forward, "bfloat16, forward", ci=30),
    Pass("int64", (torch.int64,), opinfo.forward, "int64, forward", ci=30, glance=2),
    Pass("bool", (torch.bool,), opinfo.forward, "bool, forward", ci=30),
    Pass("complex64", (torch.complex64,), opinfo.forward, "complex64, forward", ci=30),
    Pass("other_dtypes", _OTHERS, opinfo.forward, "all other dtypes, forward", ci=2),
    Pass("grad64", _FLOAT64, gradients.backward, "float64, gradients", ci=10),
    Pass("gradgrad", _FLOAT64, gradients.twice_backward, "float64, gradients' gradients", ci=2),
    Pass("forward_ad", _FLOAT64, gradients.forward_mode, "float64, forward-mode AD", ci=4),
    Pass("out", ALL, outs.right, "out= empty, of the right size, not contiguous", ci=12, glance=1),
    Pass("out_alerts", _FLOAT32, outs.alerting, "out= that must warn or be refused", ci=6),
    Pass("inplace", ALL, opinfo.inplace, "the in-place variant", glance=1),
    Pass(
        "noncontiguous",
        (torch.float32, torch.int64, torch.complex64),
        opinfo.noncontiguous,
        "inputs with gaps between their elements, forward and gradients",
        ci=12,
        glance=1,
    ),
)

SUITE: Final = Suite(
    name="op_db",
    about="PyTorch's operator database: values, dtypes, strides, aliasing, gradients",
    passes=_PASSES,
    load=_load,
    wrong=("add.Tensor", "add_.Tensor", "add.out"),
    wrong_entries=90,
)
