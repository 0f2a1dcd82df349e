"""Memory handed out and taken in where flagos stands on another device of PyTorch.

This target is one whose memory PyTorch can share with nobody. One that can be shared is not here to
try.
"""

from __future__ import annotations

import io
import multiprocessing.reduction as pickling

import pytest
import torch
from pretend_device.processes import on_pretend_device

from torch_fl import _C


@on_pretend_device
def test_views_of_the_target_and_back() -> None:
    tensor = torch.arange(6.0, device="flagos:1")[1:]
    view = _C.to_target(tensor)
    assert view.device == torch.device("hpu:1")
    assert view.data_ptr() == tensor.data_ptr()
    view.add_(1)
    assert tensor.tolist() == [2, 3, 4, 5, 6]
    again = _C.from_target(view, 0)  # the target's index counts
    assert again.device == torch.device("flagos:1")
    assert again.data_ptr() == tensor.data_ptr()
    made = _C.from_target(torch.ones(3, device="hpu:1"), 0)
    assert made.device == torch.device("flagos:1")
    assert (made + 1).tolist() == [2, 2, 2]
    for wrong in (tensor, torch.ones(1)):
        with pytest.raises(ValueError, match="Expected a tensor on hpu"):
            _C.from_target(wrong, 0)
    with pytest.raises(ValueError, match="Expected a tensor on flagos"):
        _C.to_target(torch.ones(1))


@on_pretend_device
def test_dlpack_as_an_external_device() -> None:
    tensor = torch.arange(3.0, device="flagos:1")
    again = torch.from_dlpack(tensor)
    assert again.device == tensor.device
    assert again.data_ptr() == tensor.data_ptr()
    copied = torch.from_dlpack(tensor, device="cpu")  # not the target: a copy
    assert copied.tolist() == [0, 1, 2]
    assert torch.from_dlpack(torch.ones(2), device="flagos:1").device == tensor.device


@on_pretend_device
def test_memory_that_cannot_be_shared_is_refused() -> None:
    tensor = torch.ones(2, device="flagos")
    with pytest.raises(NotImplementedError, match=r"'hpu'.*Send tensor.cpu\(\) instead"):
        pickling.ForkingPickler.dumps(tensor)
    assert tensor.tolist() == [1, 1]


@on_pretend_device
def test_checkpoints() -> None:
    file = io.BytesIO()
    torch.save([torch.ones(2, device="flagos:1"), torch.zeros(2)], file)
    for where, expected in ((None, ["flagos", "cpu"]), ("cpu", ["cpu"] * 2)):
        file.seek(0)
        loaded = torch.load(file, map_location=where)
        assert [x.device.type for x in loaded] == expected
    file.seek(0)
    assert torch.load(file, map_location="flagos:1")[1].device == torch.device("flagos:1")
