"""Owns: tests of users' Triton kernels on flagos tensors: launched, tuned, with gradients, and as
operators of PyTorch.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest
import torch
from gpu_busy import CYCLES

Tensor = torch.Tensor

SOURCE = """
import torch
import triton
import triton.language as tl

@triton.jit
def axpy(x, y, out, a, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = a * tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside)
    tl.store(out + at, value, mask=inside)

configs = [triton.Config({"BLOCK": block}, num_warps=4) for block in (256, 1024)]
tuned = triton.autotune(configs=configs, key=["n"])(axpy)

@torch.library.triton_op("torch_fl_cuda_tests_triton::by_triton", mutates_args={})
def by_triton(x: torch.Tensor, y: torch.Tensor, a: float) -> torch.Tensor:
    out = torch.empty_like(x)
    n = out.numel()
    torch.library.wrap_triton(axpy)[(triton.cdiv(n, 256),)](x, y, out, a, n, BLOCK=256)
    return out
"""


def whole(count: int) -> Tensor:
    """Small whole numbers: float32 computes with them exactly."""
    return torch.arange(float(count), device="flagos") - 5


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The module of SOURCE: Triton reads its kernels from a file."""
    pytest.importorskip("triton")
    file = tmp_path_factory.mktemp("triton") / "users_kernels.py"
    file.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("users_kernels", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["users_kernels"] = module
    spec.loader.exec_module(module)
    return module


def _grid(n: int, block: int = 256) -> tuple[int]:
    return ((n + block - 1) // block,)


def test_a_kernel_of_tritons(kernels: Any) -> None:
    x, y = whole(1000), whole(1000) * 2
    out = torch.full((1000,), -1.0, device="flagos")
    kernels.axpy[_grid(999)](x, y, out, 3.0, 999, BLOCK=256)
    assert torch.equal(out[:999], (x * 5)[:999])
    assert out[999].item() == -1, "beyond what it was told to write"


def test_a_kernel_of_tritons_is_on_the_current_stream(kernels: Any) -> None:
    x, out = torch.zeros(1000, device="flagos"), torch.zeros(1000, device="flagos")
    side = torch.flagos.Stream()
    torch.flagos.synchronize()
    with torch.flagos.stream(side):
        for cycles in (1, CYCLES):  # the first use of a kernel may wait for the device
            x.zero_()
            side.synchronize()
            torch.flagos._sleep(cycles)
            x.fill_(3)
            kernels.axpy[_grid(1000)](x, x, out, 1.0, 1000, BLOCK=256)
            busy = not side.query()
        assert busy, "all of it was given before any of it was done"
        assert out.unique().tolist() == [6.0]


def test_a_kernel_that_tunes_itself(kernels: Any) -> None:
    x, y = whole(5000), whole(5000) * 2
    out = torch.empty(5000, device="flagos")
    kernels.tuned[lambda meta: _grid(5000, meta["BLOCK"])](x, y, out, 3.0, 5000)
    assert torch.equal(out, x * 5)
    assert kernels.tuned.best_config in kernels.configs


def test_a_function_of_such_kernels_with_its_gradient(kernels: Any) -> None:
    class Axpy(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            out = torch.empty_like(x)
            kernels.axpy[_grid(x.numel())](x, y, out, 3.0, x.numel(), BLOCK=256)
            return out

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            out, zero = torch.empty_like(grad), torch.zeros_like(grad)
            grad = grad.contiguous()
            kernels.axpy[_grid(grad.numel())](grad, zero, out, 3.0, grad.numel(), BLOCK=256)
            return out, grad

    x, y = whole(600).requires_grad_(), whole(600).requires_grad_()
    (Axpy.apply(x * 2, y) * whole(600)).sum().backward()
    assert torch.equal(x.grad, whole(600) * 6)
    assert torch.equal(y.grad, whole(600))


def test_an_operator_made_of_such_kernels(kernels: Any) -> None:
    def backward(ctx: Any, grad: Tensor) -> Any:
        grad = grad.contiguous()
        zero = torch.zeros_like(grad)
        return kernels.by_triton(grad, zero, ctx.factor), grad, None

    def setup(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.factor = inputs[2]

    kernels.by_triton.register_autograd(backward, setup_context=setup)
    x, y = whole(600).requires_grad_(), whole(600)
    result = kernels.by_triton(x, y, 3.0)
    assert result.device == x.device
    assert torch.equal(result.detach(), whole(600) * 4)
    (result * 2).sum().backward()
    assert x.grad.unique().tolist() == [6.0]


def test_a_wrapped_kernel_outside_of_an_operator(kernels: Any) -> None:
    x, y = whole(600), whole(600) * 2
    out = torch.empty(600, device="flagos")
    wrapped = torch.library.wrap_triton(kernels.axpy)
    wrapped[_grid(600)](x, y, out, 3.0, 600, BLOCK=256)
    assert torch.equal(out, x * 5)
