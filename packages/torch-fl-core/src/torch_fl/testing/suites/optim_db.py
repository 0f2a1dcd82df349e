"""Owns: the suite of PyTorch's optimizer database, ``optim_db``.

Each case takes steps with given gradients, saves the state, goes on from the file with copies of
the parameters, and compares parameters and state of both with stock CPU's. How is in ``steps``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch

from ..harness.cases import Case, Cases, Pass, Suite
from ..harness.movers import CPU, Arguments
from .samples import seeded
from .steps import Differentiable, Steps, tensors_for


def _cases(
    implementation: dict[str, bool],
    *,
    needs: str = "",
    sparse: bool = False,
    schedulers: bool = False,
) -> Cases:
    """Cases of all configurations of an optimizer.

    ``needs`` is the implementation that it must have; ``capturable`` takes the configurations
    that PyTorch has for accelerators.
    """
    capturable = needs == "capturable"

    def cases(info: Any, dtype: torch.dtype) -> Iterator[Case]:
        if not _has(info, needs, dtype) or sparse > info.supports_sparse + (
            info.only_supports_sparse_grads
        ):
            return
        if info.only_supports_sparse_grads and not sparse:
            return
        known = (*info.supported_impls, "capturable")
        flags = {name: value for name, value in implementation.items() if name in known}
        given = info.optim_inputs_func(device="cuda" if capturable else "cpu", dtype=dtype)
        if sparse:
            given = [_Sparse(info.metadata_for_sparse[0])]
        makers = info.scheduler_inputs if schedulers else ((),)
        for index, options in seeded(lambda: given):
            for number, chosen in enumerate(makers):
                parameters, steps = tensors_for(info, dtype, sparse)
                arguments = Arguments((CPU, parameters, steps, {**options.kwargs, **flags}), {})
                function: Any = Steps(info, tuple(chosen), sparse)
                if needs == "differentiable":
                    function = Differentiable(info)
                label = f"{dtype} configuration {index} {options.desc}"
                yield Case(f"{label} schedulers {number}" if chosen else label, function, arguments)

    return cases


class _Sparse:
    """An optimizer's options for sparse gradients, as an OptimizerInput has them."""

    desc = "sparse gradients"

    def __init__(self, kwargs: dict[str, Any]) -> None:
        self.kwargs = kwargs


def _has(info: Any, needs: str, dtype: torch.dtype) -> bool:
    if dtype.is_complex and not info.supports_complex:
        return False
    if needs == "capturable":
        return bool(info.has_capturable_arg)
    if needs == "fused":
        return "cpu" in info.supports_fused_on and dtype.is_floating_point
    return not needs or needs in info.supported_impls


def _errors(info: Any, dtype: torch.dtype) -> Iterator[Case]:
    """Errors and warnings when an optimizer is made or takes a step."""
    if info.optim_error_inputs_func is None:
        return

    def made() -> Any:
        return info.optim_error_inputs_func(device="cpu", dtype=dtype)

    for index, given in seeded(made):
        error = given.optimizer_error_input
        parameters = [torch.randn(2, 3, dtype=dtype)] if error.params is None else error.params

        def function(parameters: Any, options: dict[str, Any]) -> Any:
            optimizer = info.optim_cls(parameters, **options)
            return repr(optimizer.step())

        arguments = Arguments((parameters, dict(error.kwargs)), {})
        label = f"error input {index} {error.desc}"
        yield Case(label, function, arguments, "alerts", given.error_regex)


def _load() -> Mapping[str, Any]:
    from torch.testing._internal.common_optimizers import optim_db

    return {info.name: info for info in optim_db}


_FLOAT32: Final = (torch.float32,)
_DTYPES: Final = (torch.float32, torch.float64, torch.bfloat16, torch.complex64)
_REAL: Final = (torch.float32, torch.float64, torch.bfloat16)
_LOOP: Final = {"foreach": False, "fused": False}
_FOREACH: Final = {"foreach": True}

SUITE: Final = Suite(
    name="optim_db",
    about="torch.optim: several steps, state through a file, more steps",
    passes=(
        Pass("default", _DTYPES, _cases({}), "what PyTorch chooses", ci=4, glance=2),
        Pass("for_loop", _DTYPES, _cases(_LOOP), "foreach=False", ci=4, glance=2, selfcheck=3),
        Pass("foreach", _DTYPES, _cases(_FOREACH, needs="foreach"), "foreach=True", ci=4, glance=2),
        Pass("fused", _REAL, _cases({"fused": True}, needs="fused"), "fused=True", ci=4, glance=2),
        Pass(
            "capturable",
            _REAL,
            _cases({**_LOOP, "capturable": True}, needs="capturable"),
            "capturable=True, with numbers and with tensors for lr and betas",
            ci=4,
        ),
        Pass(
            "capturable_foreach",
            _REAL,
            _cases({**_FOREACH, "capturable": True}, needs="capturable"),
            "the same with foreach=True",
            ci=4,
        ),
        Pass(
            "differentiable",
            _FLOAT32,
            _cases({**_LOOP, "differentiable": True}, needs="differentiable"),
            "differentiable=True",
        ),
        Pass("sparse", _FLOAT32, _cases({}, sparse=True), "sparse gradients"),
        Pass("schedulers", _FLOAT32, _cases({}, schedulers=True), "with schedulers", ci=4),
        Pass("errors", _FLOAT32, _errors, "what optimizers refuse and warn of"),
    ),
    load=_load,
    wrong=("add_.Tensor", "mul_.Tensor", "lerp_.Scalar", "addcdiv_", "addcmul_"),
    wrong_entries=10,
)
