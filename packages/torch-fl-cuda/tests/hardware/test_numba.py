"""Owns: numba's CUDA kernels on flagos memory, through the target's tensors."""

from __future__ import annotations

import pytest
import torch

from torch_fl.interop import as_flagos, as_target

cuda = pytest.importorskip("numba.cuda", reason="needs numba-cuda")


def test_a_kernel_writes_into_flagos_memory() -> None:
    @cuda.jit
    def twice(values, results):  # type: ignore[no-untyped-def]
        place = cuda.grid(1)
        if place < values.shape[0]:
            results[place] = 2 * values[place]

    values = torch.arange(1000.0, device="flagos")
    results = torch.zeros_like(values)
    stream = cuda.external_stream(torch.flagos.current_stream().cuda_stream)
    given, written = (cuda.as_cuda_array(as_target(t)) for t in (values, results))
    twice[8, 128, stream](given, written)
    assert torch.equal(results, values * 2)


def test_numbas_arrays_become_flagos_tensors() -> None:
    array = cuda.to_device(list(range(5)))
    tensor = as_flagos(torch.as_tensor(array, device="cuda"))
    assert tensor.device.type == "flagos"
    assert tensor.tolist() == [0, 1, 2, 3, 4]
    tensor.add_(1)
    assert array.copy_to_host().tolist() == [1, 2, 3, 4, 5]
