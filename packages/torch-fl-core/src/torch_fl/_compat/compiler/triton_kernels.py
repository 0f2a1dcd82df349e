"""Owns: users' Triton kernels, wrapped as operators, on flagos.

Reason: PyTorch's operators around a Triton kernel pass by the autograd and autocast keys of CPU and
CUDA alone, so that a wrapped kernel called outside of an operator finds nothing to run for flagos.
The other keys of the same kind are passed by in the same way. Dated 2026-11, torch 2.11 to 2.14.
Held by tests/interop/test_triton_operators.py.
"""

from __future__ import annotations

from typing import Any

from torch._C import DispatchKey

from torch_fl._compat.importing import when_imported

_MODULE = "torch._higher_order_ops.triton_kernel_wrap"


def install() -> None:
    """Lets wrapped kernels take flagos tensors."""
    when_imported(_MODULE, _change)


def _change(module: Any) -> None:
    operators = (module.triton_kernel_wrapper_mutation, module.triton_kernel_wrapper_functional)
    for operator in operators:
        for name in ("AutogradPrivateUse1", "AutocastPrivateUse1"):
            key = getattr(DispatchKey, name)
            if key not in operator.py_kernels:
                operator.fallthrough(key)
