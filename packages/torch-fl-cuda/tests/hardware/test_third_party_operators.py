"""Owns: tests of other people's operators that have a kernel for CUDA alone, called with flagos
tensors: Python kernels and a compiled extension, with gradients and on the current stream. Triton's
are in test_triton_kernels.py.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu_busy import CYCLES

from torch_fl import interop

Tensor = torch.Tensor

NAMESPACE = "torch_fl_cuda_tests"


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    """Operators of a test's own, which end with it."""
    made = torch.library.Library(NAMESPACE, "FRAGMENT")
    yield made
    made._destroy()


def whole(*shape: int) -> Tensor:
    """Small whole numbers: float32 computes with them exactly."""
    return torch.arange(float(torch.Size(shape).numel()), device="flagos").view(shape) - 5


# -- kernels in Python


def test_a_custom_op_for_cuda_alone() -> None:
    seen: list[str] = []

    @torch.library.custom_op(f"{NAMESPACE}::cube", mutates_args=(), device_types="cuda")
    def cube(x: Tensor, factor: float) -> Tensor:
        seen.append(str(x.device))
        return x**3 * factor

    @torch.library.custom_op(f"{NAMESPACE}::cube_backward", mutates_args=(), device_types="cuda")
    def cube_backward(grad: Tensor, x: Tensor, factor: float) -> Tensor:
        seen.append(str(grad.device))
        return 3 * factor * x**2 * grad

    def setup(ctx: Any, inputs: Any, output: Tensor) -> None:
        x, ctx.factor = inputs
        ctx.save_for_backward(x)

    def backward(ctx: Any, grad: Tensor) -> Any:
        return cube_backward(grad, *ctx.saved_tensors, ctx.factor), None

    cube.register_autograd(backward, setup_context=setup)
    weight = whole(3, 4).requires_grad_()
    result = cube(weight * 2, 0.5)
    assert result.device == torch.device("flagos", 0)
    result.sum().backward()
    assert seen == ["cuda:0", "cuda:0"]
    assert torch.equal(result.detach().cpu(), 4 * whole(3, 4).cpu() ** 3)
    assert torch.equal(weight.grad.cpu(), 12 * whole(3, 4).cpu() ** 2)
    assert torch.autograd.gradcheck(cube, [whole(2, 3).double().requires_grad_(), 0.5])


def test_an_operator_that_writes_takes_lists_and_gives_several(
    library: torch.library.Library,
) -> None:
    library.define("mix(Tensor(a!) x, Tensor[] parts, Tensor? bias) -> (Tensor, Tensor[])")

    def mix(x: Tensor, parts: list[Tensor], bias: Tensor | None) -> Any:
        assert x.is_cuda
        assert all(part.is_cuda for part in parts)
        x.add_(sum(parts) if bias is None else sum(parts) + bias)
        return x * 2, [part + 1 for part in parts]

    library.impl("mix", mix, "CUDA")
    x, part = whole(6), torch.ones(6, device="flagos")
    version = x._version
    doubled, parts = getattr(torch.ops, NAMESPACE).mix(x, [part, part[1:].sum()], None)
    assert x.tolist() == [value + 1.0 for value in range(6)]
    assert x._version > version, "autograd must learn that it was written"
    assert torch.equal(doubled, x * 2)
    assert [y.device.type for y in (doubled, *parts)] == ["flagos"] * 3
    assert [y.tolist() for y in parts] == [[2.0] * 6, 6.0]


def test_a_function_around_such_an_operator(library: torch.library.Library) -> None:
    library.define("times(Tensor x, Tensor y) -> Tensor")
    devices: list[str] = []

    def times(x: Tensor, y: Tensor) -> Tensor:
        devices.extend([x.device.type, y.device.type])
        return x * y

    library.impl("times", times, "CUDA")
    operator = getattr(torch.ops, NAMESPACE).times

    class Times(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            ctx.save_for_backward(x, y)
            return operator(x, y)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            x, y = ctx.saved_tensors
            return operator(grad, y), operator(grad, x)

    x, y = whole(4).requires_grad_(), (whole(4) * 2).requires_grad_()
    Times.apply(x, y).sum().backward()
    assert devices == ["cuda"] * 6
    assert torch.equal(x.grad, y.detach())
    assert torch.equal(y.grad, x.detach())


def test_what_has_no_kernel_for_cuda_either_is_refused_by_name(
    library: torch.library.Library,
) -> None:
    library.define("for_the_cpu(Tensor x) -> Tensor")
    library.impl("for_the_cpu", lambda x: x + 1, "CPU")
    with pytest.raises(NotImplementedError, match=r"for_the_cpu.*flagos"):
        getattr(torch.ops, NAMESPACE).for_the_cpu(whole(2))


# -- a compiled extension

CUDA_SOURCE = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void axpy_kernel(const float* x, const float* y, float a, float* out, int64_t n) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}

at::Tensor axpy(const at::Tensor& x, const at::Tensor& y, double a) {
  TORCH_CHECK(x.is_cuda() && y.is_cuda(), "axpy takes CUDA tensors");
  auto out = at::empty_like(x);
  const int64_t n = x.numel();
  axpy_kernel<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.const_data_ptr<float>(), y.const_data_ptr<float>(), static_cast<float>(a),
      out.mutable_data_ptr<float>(), n);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""

CPP_SOURCE = r"""
#include <torch/library.h>

at::Tensor axpy(const at::Tensor& x, const at::Tensor& y, double a);

TORCH_LIBRARY(torch_fl_cuda_tests_compiled, m) {
  m.def("axpy(Tensor x, Tensor y, float a) -> Tensor");
}
TORCH_LIBRARY_IMPL(torch_fl_cuda_tests_compiled, CUDA, m) { m.impl("axpy", &axpy); }
"""


def _compiled(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Any:
    from torch.utils import cpp_extension

    path = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    monkeypatch.setenv("PATH", os.pathsep.join(path))
    missing = [tool for tool in ("nvcc", "c++", "ninja") if shutil.which(tool) is None]
    if missing or cpp_extension.CUDA_HOME is None:
        pytest.skip(f"needs CUDA's compiler and its helpers; missing: {missing}")
    major, minor = torch.cuda.get_device_capability()
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", f"{major}.{minor}")
    return cpp_extension.load_inline(
        "torch_fl_cuda_tests_compiled",
        cpp_sources=CPP_SOURCE,
        cuda_sources=CUDA_SOURCE,
        functions=["axpy"],
        build_directory=str(folder),
    )


def test_a_compiled_extension(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # One test, since compiling takes most of a minute.
    extension = _compiled(monkeypatch, tmp_path)
    operator = torch.ops.torch_fl_cuda_tests_compiled.axpy
    x, y = whole(3, 4), whole(3, 4).t().reshape(3, 4) + 1
    expected = 2 * x.cpu() + y.cpu()

    result = operator(x, y, 2.0)
    assert result.device == x.device
    assert torch.equal(result.cpu(), expected)

    # A function that looks at the device itself is given the target's tensors.
    with pytest.raises(RuntimeError, match="axpy takes CUDA tensors"):
        extension.axpy(x, y, 2.0)
    result = interop.as_flagos(extension.axpy(interop.as_target(x), interop.as_target(y), 2.0))
    assert torch.equal(result.cpu(), expected)

    def backward(ctx: Any, grad: Tensor) -> Any:
        zero = torch.zeros_like(grad)
        return operator(grad, zero, ctx.factor), operator(grad, zero, 1.0), None

    def setup(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.factor = inputs[2]

    torch.library.register_autograd(operator.default, backward, setup_context=setup)
    for tensor in (x, y):
        tensor.requires_grad_()
    (operator(x, y, 3.0) * 2).sum().backward()
    assert (x.grad.unique().tolist(), y.grad.unique().tolist()) == ([6.0], [2.0])

    # Its kernel is on the current stream: behind the work that this waits for.
    side, z = torch.flagos.Stream(), torch.zeros(4, device="flagos")
    torch.flagos.synchronize()
    with torch.flagos.stream(side):
        for cycles in (1, CYCLES):  # the first use of a kernel may wait for the device
            z.zero_()
            side.synchronize()
            torch.flagos._sleep(cycles)
            result = operator(z.fill_(3), z, 1.0)
            busy = not side.query()
        assert busy, "all of it was given before any of it was done"
        assert result.tolist() == [6.0] * 4
