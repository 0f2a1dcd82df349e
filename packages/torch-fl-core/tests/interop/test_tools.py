"""Data loading, benchmarks, environment reports and texts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from parity import FLAGOS
from torch.utils.data import DataLoader, TensorDataset, default_collate, default_convert


def test_collating() -> None:
    x = torch.ones(2, device=FLAGOS)
    assert default_collate([x, x]).device == FLAGOS
    assert default_collate([{"a": x}, {"a": x}])["a"].shape == (2, 2)
    assert default_convert({"a": x})["a"] is x


def test_loaders_in_this_process() -> None:
    data = TensorDataset(torch.arange(8.0, device=FLAGOS))
    generator = torch.Generator().manual_seed(0)
    batches = [x for (x,) in DataLoader(data, 2, shuffle=True, generator=generator)]
    assert all(x.device == FLAGOS for x in batches)
    assert sorted(torch.cat(batches).tolist()) == [*range(8)]


def test_pinned_batches() -> None:
    loader = DataLoader(TensorDataset(torch.arange(8.0)), 2, pin_memory=True)
    batches = [x for (x,) in loader]
    assert all(x.is_pinned() and x.device.type == "cpu" for x in batches)
    assert torch.cat(batches).to(FLAGOS, non_blocking=True).tolist() == [*range(8)]
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        [*DataLoader(TensorDataset(torch.ones(2, device=FLAGOS)), pin_memory=True)]


def test_numpy_is_refused_as_for_cuda() -> None:
    x = torch.ones(2, device=FLAGOS)
    text = (
        r"can't convert flagos:0 device type tensor to numpy. Use Tensor.cpu\(\) to copy the "
        "tensor to host memory first."
    )
    for convert in (lambda: x.numpy(), lambda: np.asarray(x), lambda: np.add(x, 1)):
        with pytest.raises(TypeError, match=text):
            convert()
    assert x.numpy(force=True).tolist() == [1, 1]
    assert not hasattr(x, "__array_interface__")
    assert torch.as_tensor(np.ones(2), device=FLAGOS).device == FLAGOS


def test_the_timer_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils import benchmark

    waits: list[object] = []
    real = torch.accelerator.synchronize
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda *a: waits.append(a) or real(*a))
    timer = benchmark.Timer("x @ x", globals={"x": torch.ones(8, 8, device=FLAGOS)})
    assert timer.timeit(3).mean > 0
    assert waits


def test_the_environment_report() -> None:
    from torch.utils.collect_env import get_env_info, pretty_str

    assert torch.__version__ in pretty_str(get_env_info())


def test_texts() -> None:
    from torch.nested import nested_tensor

    torch.manual_seed(0)
    for tensor in (
        torch.randn(3),
        torch.randn(200, 200),
        torch.randn(3) * 1e10,
        torch.tensor([float("nan"), 1.0]),
        torch.randn(2, dtype=torch.complex64),
        torch.tensor(3),
        torch.empty(0, 3),
        torch.tensor([True]),
    ):
        for options in ({}, {"precision": 2}, {"sci_mode": True}):
            torch.set_printoptions(**options)
            try:
                here, there = repr(tensor), repr(tensor.to(FLAGOS))
            finally:
                torch.set_printoptions(profile="default")
            plain = " ".join(there.replace("device='flagos:0'", "").split())
            assert plain.replace(", )", ")").replace(", ,", ",") == " ".join(here.split())
            assert "device='flagos:0'" in there
    jagged = nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged, device=FLAGOS)
    assert "offsets=tensor([0, 2, 5], device='flagos:0')" in repr(jagged)
    assert f"{torch.tensor(3.14, device=FLAGOS):.1f}" == "3.1"
    assert "device=flagos:0" in repr(torch.ones(2, device=FLAGOS).untyped_storage())


def test_errors_of_autograd_name_the_type() -> None:
    x = torch.ones(2, device=FLAGOS, requires_grad=True)
    y = x.exp()
    loss = y.sum()
    with torch.no_grad():
        y.add_(1)
    # CUDA's says "torch.cuda.FloatTensor"; PyTorch makes the name of the device's own.
    with pytest.raises(RuntimeError, match=r"(flagosFloatType|torch.flagos.FloatTensor) \[2\]"):
        loss.backward()
    with pytest.raises(RuntimeError, match="expected device flagos:0 but got cpu"):
        (x * 2).backward(torch.ones(2))
