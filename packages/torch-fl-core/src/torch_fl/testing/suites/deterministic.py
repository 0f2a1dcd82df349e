"""Owns: the suite of ``torch.use_deterministic_algorithms``: the rules that stock CPU has.

An operator must raise where the CPU's raises, warn where that warns, with the same words; and
what is otherwise uninitialised memory has the value that PyTorch fills it with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import torch

from ..harness.cases import Case, Cases, Pass, Suite
from . import gradients, opinfo


class _Deterministic:
    """A function under deterministic algorithms."""

    def __init__(self, function: Callable[..., Any], warn_only: bool) -> None:
        self._function = function
        self._warn_only = warn_only

    def __call__(self, *positional: Any, **keyword: Any) -> Any:
        before = torch.get_deterministic_debug_mode()
        torch.use_deterministic_algorithms(True, warn_only=self._warn_only)
        try:
            return self._function(*positional, **keyword)
        finally:
            torch.set_deterministic_debug_mode(before)


def _under(cases: Cases, warn_only: bool) -> Cases:
    def made(op: Any, dtype: torch.dtype) -> Iterator[Case]:
        for case in cases(op, dtype):
            function = _Deterministic(case.function, warn_only)
            yield replace(case, function=function, judged="alerts")

    return made


def _load() -> Mapping[str, Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return {op.full_name: op for op in op_db}


_FLOAT32: Final = (torch.float32,)

SUITE: Final = Suite(
    name="deterministic",
    about="the rules of torch.use_deterministic_algorithms, for op_db",
    passes=(
        Pass(
            "raises",
            _FLOAT32,
            _under(opinfo.forward, warn_only=False),
            "forward; alerts are errors",
            any_dtype=True,
            ci=4,
            glance=1,
            selfcheck=2,
            defined_memory=True,
        ),
        Pass(
            "grad",
            _FLOAT32,
            _under(gradients.backward, warn_only=False),
            "gradients; alerts are errors",
            ci=3,
            defined_memory=True,
        ),
        Pass(
            "warns",
            _FLOAT32,
            _under(gradients.backward, warn_only=True),
            "gradients; alerts are warnings",
            ci=2,
            defined_memory=True,
        ),
    ),
    load=_load,
    wrong=("add.Tensor", "add_.Tensor", "add.out"),
    wrong_entries=25,
)
