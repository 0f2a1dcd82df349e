"""Owns: tests of flagos tensors as the target's and back, on host memory."""

from __future__ import annotations

import gc

import pytest
import torch

import torch_fl
from torch_fl import interop


def test_both_share_the_memory_and_keep_it() -> None:
    x = torch.arange(12.0, device="flagos").view(3, 4).T
    y = interop.as_target(x)
    assert (y.device.type, y.shape, y.stride(), y.dtype) == ("cpu", x.shape, x.stride(), x.dtype)
    y[0, 0] = 7
    assert x[0, 0].item() == 7
    again = interop.as_flagos(y)
    assert again.device == x.device
    assert again.data_ptr() == x.data_ptr()
    held = torch.flagos.memory_allocated()
    del x, again
    gc.collect()
    assert torch.flagos.memory_allocated() == held
    assert y.sum().item() == 66 + 7
    del y
    assert torch.flagos.memory_allocated() < held


def test_autograd_has_no_part_in_it() -> None:
    x = torch.ones(3, device="flagos", requires_grad=True)
    assert not interop.as_target(x * 2).requires_grad
    assert not interop.as_flagos(torch.ones(3, requires_grad=True)).requires_grad


def test_a_device_may_be_named() -> None:
    for device in (None, 0, torch.device("flagos"), torch.device("flagos:0")):
        assert interop.as_flagos(torch.ones(2), device).device == torch.device("flagos:0")
    with pytest.raises(RuntimeError, match="device"):
        interop.as_flagos(torch.ones(2), 5)


def test_what_cannot_be_shared_is_refused() -> None:
    with pytest.raises(ValueError, match="Expected a tensor on flagos, but got one on cpu"):
        interop.as_target(torch.ones(2))
    with pytest.raises(ValueError, match="Expected a tensor on cpu, but got one on flagos"):
        interop.as_flagos(torch.ones(2, device="flagos"))
    with pytest.raises(NotImplementedError, match="strided"):
        interop.as_target(torch.ones(2, 2, device="flagos").to_sparse())


def test_it_is_reached_from_the_package() -> None:
    assert torch_fl.interop is interop
