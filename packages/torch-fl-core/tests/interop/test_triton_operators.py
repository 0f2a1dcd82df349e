"""Owns: tests of PyTorch's operators around Triton kernels. Kernels run on hardware alone
(packages/torch-fl-cuda/tests/hardware/test_triton_kernels.py)."""

from __future__ import annotations

import pytest
import torch
from torch._C import DispatchKey

from torch_fl._compat.compiler import triton_kernels  # noqa: F401  (what is held here)

wrap = pytest.importorskip("torch._higher_order_ops.triton_kernel_wrap")


@pytest.mark.parametrize("name", ["AutogradPrivateUse1", "AutocastPrivateUse1"])
@pytest.mark.parametrize(
    "operator", [wrap.triton_kernel_wrapper_mutation, wrap.triton_kernel_wrapper_functional]
)
def test_keys_of_flagos_are_passed_by_as_cudas_are(operator: object, name: str) -> None:
    keys = operator.non_fallthrough_keys  # type: ignore[attr-defined]
    cuda = getattr(DispatchKey, name.replace("PrivateUse1", "CUDA"))
    assert not keys.has(cuda), "PyTorch itself passes CUDA's by"
    assert not keys.has(getattr(DispatchKey, name))
    assert torch.ones(1, device="flagos").item() == 1
