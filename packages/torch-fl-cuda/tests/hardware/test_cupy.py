"""Owns: tests of flagos tensors in CuPy and of its arrays as flagos tensors: one memory, one order
of work, kernels of CuPy's own.
"""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from gpu_busy import CYCLES

from torch_fl import interop

Tensor = torch.Tensor

ON_CUDA = (2, 0)  # DLPack's kDLCUDA, device 0
ELEMENTS = 1 << 20

SQUARE = r"""
extern "C" __global__ void square(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * x[i];
}
"""


@pytest.fixture
def cupy() -> Any:
    """CuPy, where it is installed."""
    return pytest.importorskip("cupy")


def numbers(count: int) -> Tensor:
    return torch.arange(float(count), device="flagos")


class AskedForCuda:
    """A flagos tensor for libraries that ask where memory is before they ask for it."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __dlpack_device__(self) -> tuple[int, int]:
        return ON_CUDA

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__(**{**options, "dl_device": ON_CUDA})


def test_the_handle_of_a_stream_is_cudas() -> None:
    side = torch.flagos.Stream()
    assert side.cuda_stream != 0
    with torch.flagos.stream(side):
        assert torch.cuda.current_stream().cuda_stream == side.cuda_stream
    assert torch.flagos.default_stream().cuda_stream == torch.cuda.default_stream().cuda_stream


@pytest.mark.parametrize("wrap", [interop.as_target, AskedForCuda])
def test_cupy_takes_a_tensor_by_dlpack(cupy: Any, wrap: Any) -> None:
    x = numbers(12).view(3, 4).t()
    array = cupy.from_dlpack(wrap(x))
    assert array.data.ptr == x.data_ptr()
    assert (array.shape, array.strides) == ((4, 3), (4, 16))
    array += 1
    cupy.cuda.get_current_stream().synchronize()
    assert torch.equal(x.cpu(), torch.arange(1.0, 13.0).view(3, 4).t())
    assert cupy.asnumpy(array.sum(axis=0)).tolist() == x.sum(0).tolist()


def test_cupy_takes_a_view_by_the_array_interface(cupy: Any) -> None:
    x = torch.arange(12, dtype=torch.int64, device="flagos").view(3, 4)[:, 1:]
    view = interop.as_target(x)
    facts = view.__cuda_array_interface__
    assert (facts["data"], facts["shape"]) == ((x.data_ptr(), False), (3, 3))
    assert (facts["typestr"], facts["strides"]) == ("<i8", (32, 8))
    array = cupy.asarray(view)
    assert array.data.ptr == x.data_ptr()
    array[0, 0] = 50
    cupy.cuda.get_current_stream().synchronize()
    assert x[0, 0].item() == 50


def test_an_array_of_cupy_becomes_a_flagos_tensor(cupy: Any) -> None:
    for import_it in (
        lambda array: interop.as_flagos(torch.from_dlpack(array)),
        lambda array: torch.from_dlpack(array, device="flagos"),
    ):
        array = cupy.arange(ELEMENTS, dtype=cupy.float32)
        x = import_it(array)
        assert x.device == torch.device("flagos", 0)
        assert x.data_ptr() == array.data.ptr
        del array
        gc.collect()
        others = [cupy.full(ELEMENTS, -1, dtype=cupy.float32) for _ in range(8)]
        assert x.data_ptr() not in {other.data.ptr for other in others}
        assert torch.equal((x * 2).cpu(), torch.arange(float(ELEMENTS)) * 2)


def test_a_kernel_of_cupys_runs_in_the_order_of_the_current_stream(cupy: Any) -> None:
    square = cupy.RawKernel(SQUARE, "square")
    x, y = torch.zeros(ELEMENTS, device="flagos"), torch.zeros(ELEMENTS, device="flagos")
    arrays = [cupy.from_dlpack(interop.as_target(t)) for t in (x, y)]
    arguments = ((ELEMENTS // 256,), (256,), (*arrays, cupy.int32(ELEMENTS)))
    side = torch.flagos.Stream()
    torch.flagos.synchronize()
    with torch.flagos.stream(side), cupy.cuda.ExternalStream(side.cuda_stream):
        for cycles in (1, CYCLES):  # the first use of a kernel may wait for the device
            x.zero_()
            side.synchronize()
            torch.flagos._sleep(cycles)
            x.fill_(3)
            square(*arguments)
            y += 1
            busy = not side.query()
        assert busy, "all of it was given before any of it was done"
        assert torch.equal(y.cpu(), torch.full((ELEMENTS,), 10.0))


def test_a_function_of_cupys_with_its_gradient(cupy: Any) -> None:
    def on_cupy(function: Any, *tensors: Tensor) -> Tensor:
        with cupy.cuda.ExternalStream(torch.flagos.current_stream().cuda_stream):
            arrays = [cupy.from_dlpack(interop.as_target(t)) for t in tensors]
            return interop.as_flagos(torch.from_dlpack(function(*arrays)))

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return on_cupy(lambda a: a * a * a, x)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return on_cupy(lambda a, g: 3 * a * a * g, *ctx.saved_tensors, grad.contiguous())

    weight = torch.arange(1.0, 5.0, device="flagos", dtype=torch.float64, requires_grad=True)
    (Cube.apply(weight * 2) * torch.ones_like(weight)).sum().backward()
    assert weight.grad.tolist() == [24.0 * value**2 for value in range(1, 5)]
    assert torch.autograd.gradcheck(Cube.apply, [weight])
