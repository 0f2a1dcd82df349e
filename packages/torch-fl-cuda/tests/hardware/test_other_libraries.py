"""Owns: tests of flagos tensors as CUDA's and by DLPack: nothing is copied, memory lives as long as
anybody needs it, and the order of streams is kept. CuPy is in test_cupy.py.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch
from gpu_busy import CYCLES

from torch_fl import interop

Tensor = torch.Tensor

ON_CUDA = (2, 0)  # DLPack's kDLCUDA, device 0
EXTERNAL = 12  # DLPack's kDLExtDev
ELEMENTS = 1 << 20


@pytest.fixture
def side() -> Iterator[torch.Stream]:
    """A stream beside the current one; nothing is left on either."""
    stream = torch.flagos.Stream()
    torch.flagos.synchronize()
    yield stream
    torch.flagos.synchronize()


def numbers(count: int = ELEMENTS) -> Tensor:
    return torch.arange(float(count), device="flagos")


def overwrite_what_is_free(size: int = ELEMENTS) -> list[Tensor]:
    """Takes blocks of this size, so that freed memory would be among them."""
    return [torch.full((size,), -1.0, device="flagos") for _ in range(8)]


# -- views of the target


def test_a_view_is_a_cuda_tensor_over_the_same_memory() -> None:
    x = numbers(12).view(3, 4).t()[1:]
    y = interop.as_target(x)
    assert (y.device, y.is_cuda) == (torch.device("cuda", 0), True)
    assert (y.shape, y.stride(), y.dtype) == (x.shape, x.stride(), x.dtype)
    assert y.data_ptr() == x.data_ptr()
    assert y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    y.add_(100)
    assert x.tolist() == [[101.0, 105.0, 109.0], [102.0, 106.0, 110.0], [103.0, 107.0, 111.0]]
    again = interop.as_flagos(y)
    assert again.device == torch.device("flagos", 0)
    assert again.data_ptr() == x.data_ptr()


def test_a_freed_block_is_handed_out_again() -> None:
    # The control of the tests below: what they keep alive would be overwritten.
    torch.flagos.synchronize()
    x = numbers()
    address = x.data_ptr()
    del x
    assert address in {block.data_ptr() for block in overwrite_what_is_free()}


def test_the_memory_lives_as_long_as_the_view() -> None:
    x = numbers()
    view = interop.as_target(x)[ELEMENTS // 2 :]
    del x
    gc.collect()
    others = overwrite_what_is_free()
    assert torch.equal(view.cpu(), torch.arange(float(ELEMENTS))[ELEMENTS // 2 :])
    assert all(bool((other == -1).all()) for other in others)


def test_memory_of_a_cuda_tensor_lives_as_long_as_the_flagos_tensor() -> None:
    native = torch.arange(float(ELEMENTS), device="cuda")
    x = interop.as_flagos(native)
    address = native.data_ptr()
    del native
    gc.collect()
    others = overwrite_what_is_free()
    assert x.data_ptr() == address
    assert torch.equal((x + 1).cpu(), torch.arange(1.0, ELEMENTS + 1))
    del others


def test_the_last_holder_gives_the_memory_back() -> None:
    gc.collect()
    level = torch.cuda.memory_allocated()
    x = numbers()
    assert torch.cuda.memory_allocated() == level + 4 * ELEMENTS
    view = interop.as_target(x)
    again = interop.as_flagos(view)
    del x, view
    assert torch.cuda.memory_allocated() == level + 4 * ELEMENTS
    del again
    assert torch.cuda.memory_allocated() == level


def test_autograd_has_no_part_in_a_view() -> None:
    x = torch.ones(3, device="flagos", requires_grad=True)
    y = interop.as_target(x * 2)
    assert (y.requires_grad, y.grad_fn) == (False, None)
    assert not interop.as_target(x).requires_grad
    assert not interop.as_flagos(torch.ones(3, device="cuda", requires_grad=True)).requires_grad


# -- DLPack


def test_dlpack_names_an_external_device_and_imports_what_it_exports() -> None:
    x = numbers(6)[1:]
    assert tuple(map(int, x.__dlpack_device__())) == (EXTERNAL, 0)
    y = torch.from_dlpack(x)
    assert (y.device, y.data_ptr()) == (x.device, x.data_ptr())
    y.mul_(2)
    assert x.tolist() == [2.0, 4.0, 6.0, 8.0, 10.0]
    address = x.data_ptr()
    del x
    gc.collect()
    others = overwrite_what_is_free(6)
    assert y.data_ptr() == address
    assert y.tolist() == [2.0, 4.0, 6.0, 8.0, 10.0]
    del others


def test_dlpack_exports_cuda_to_whoever_asks_for_it() -> None:
    x = numbers(6)
    for version in (None, (1, 0)):
        y = torch.from_dlpack(x.__dlpack__(dl_device=ON_CUDA, max_version=version))
        assert (y.device, y.data_ptr()) == (torch.device("cuda", 0), x.data_ptr())
    copied = torch.from_dlpack(x.__dlpack__(dl_device=ON_CUDA, max_version=(1, 0), copy=True))
    assert copied.is_cuda
    assert copied.data_ptr() != x.data_ptr()
    assert copied.tolist() == x.tolist()


def test_dlpack_goes_both_ways_without_a_copy() -> None:
    x = numbers(6)
    native = torch.from_dlpack(x, device="cuda")
    assert (native.device.type, native.data_ptr()) == ("cuda", x.data_ptr())
    again = torch.from_dlpack(native, device="flagos")
    assert (again.device, again.data_ptr()) == (x.device, x.data_ptr())
    assert torch.from_dlpack(native, device="flagos", copy=True).data_ptr() != x.data_ptr()
    assert torch.from_dlpack(x, device="cpu").tolist() == x.tolist()


def test_what_dlpack_cannot_say_is_refused_as_on_cuda() -> None:
    weight = torch.ones(2, device="flagos", requires_grad=True)
    turned = torch.ones(2, dtype=torch.complex64, device="flagos").conj()
    for tensor, words in ((weight, "require gradient"), (turned, "conjugate bit")):
        with pytest.raises(BufferError, match=words):
            tensor.__dlpack__(dl_device=ON_CUDA)


def test_the_consumers_stream_waits_for_the_producers(side: torch.Stream) -> None:
    x = numbers(6).fill_(0)  # a kernel's first use may wait for the device
    other = torch.flagos.Stream()
    torch.flagos.synchronize()
    with torch.flagos.stream(side):
        torch.flagos._sleep(CYCLES)
        x.fill_(7)
        x.__dlpack__(dl_device=ON_CUDA)
        assert other.query(), "nobody asked for an order"
        capsule = x.__dlpack__(dl_device=ON_CUDA, stream=other.cuda_stream)
    assert not other.query(), "it waits"
    with torch.flagos.stream(other):
        assert torch.from_dlpack(capsule).clone().tolist() == [7.0] * 6
    torch.flagos.synchronize()


def test_an_external_export_makes_the_consumers_stream_wait_too(side: torch.Stream) -> None:
    x = numbers(6).fill_(0)  # a kernel's first use may wait for the device
    other = torch.flagos.Stream()
    torch.flagos.synchronize()
    with torch.flagos.stream(side):
        torch.flagos._sleep(CYCLES)
        x.__dlpack__()
        assert other.query(), "nobody asked for an order"
        x.__dlpack__(stream=other.cuda_stream)
    assert not other.query(), "it waits"
