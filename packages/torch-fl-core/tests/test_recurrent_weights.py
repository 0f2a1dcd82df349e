"""Owns: tests of where a recurrent layer's weights lie, with a library that is written here.

What cuDNN does with them is shown on hardware (packages/torch-fl-cuda/tests/hardware).
"""

from __future__ import annotations

import pytest
import torch
from pretend_device.processes import on_pretend_device
from torch import nn

import torch_fl  # noqa: F401  (makes the device)


def test_on_a_target_without_a_library_nothing_moves() -> None:
    layer = nn.LSTM(3, 4).to("flagos")
    before = [weight.data_ptr() for weight in layer.parameters()]
    layer.flatten_parameters()
    assert [weight.data_ptr() for weight in layer.parameters()] == before
    layer(torch.ones(2, 1, 3, device="flagos"))[0].sum().backward()


def test_other_devices_are_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(torch.backends.cudnn, "is_acceptable", lambda w: asked.append(w) or False)
    layer = nn.GRU(3, 4)
    layer.flatten_parameters()
    layer.half().flatten_parameters()
    assert asked == []  # on the CPU PyTorch asks for is_cuda first


@on_pretend_device
def test_the_librarys_piece_of_memory() -> None:
    """Each weight keeps its values and its identity and lies where the library put it."""
    calls = []

    def flatten(weights, stride, input_size, mode, hidden_size, projection_size, layers, *rest):
        calls.append((stride, input_size, mode, hidden_size, projection_size, layers, *rest))
        assert {weight.device.type for weight in weights} == {"hpu"}
        flat = torch.cat([weight.reshape(-1) for weight in weights])
        offset = 0
        for weight in weights:
            part = flat[offset : offset + weight.numel()]
            weight.set_(part.view_as(weight))
            offset += part.numel()
        return flat

    library = torch.library.Library("aten", "IMPL")
    library.impl("_cudnn_rnn_flatten_weight", flatten, "HPU")
    torch.backends.cudnn.is_acceptable = lambda weight: weight.device.type == "hpu"
    torch._use_cudnn_rnn_flatten_weight = lambda: True
    torch.backends.cudnn.rnn.get_cudnn_mode = {"LSTM": 2}.__getitem__

    layer = nn.LSTM(3, 4, num_layers=2, bidirectional=True, proj_size=2)
    before = {name: weight.detach().clone() for name, weight in layer.named_parameters()}
    layer = layer.to("flagos:1")
    assert calls, "the library was not asked"
    assert set(calls) == {(5, 3, 2, 4, 2, 2, False, True)}, calls
    weights = dict(layer.named_parameters())
    for name, weight in weights.items():
        assert weight.is_leaf
        assert torch.equal(weight.cpu(), before[name])
    one = {weight.untyped_storage().data_ptr() for weight in weights.values()}
    assert len(one) == 1
    ends = sorted((w.storage_offset(), w.storage_offset() + w.numel()) for w in weights.values())
    assert [start for start, _ in ends[1:]] == [end for _, end in ends[:-1]]
    with torch.no_grad():
        layer.weight_ih_l0.fill_(7.0)
    assert layer.weight_ih_l0.eq(7).all()
    assert not layer.weight_hh_l0.eq(7).any()
    layer(torch.ones(2, 1, 3, device="flagos:1"))[0].sum().backward()
    assert all(weight.grad is not None for weight in weights.values())
    calls.clear()
    nn.LSTM(3, 4).to("flagos").bfloat16()  # one dtype, as PyTorch wants it
    layer._flat_weights[0] = layer._flat_weights[1]
    layer.flatten_parameters()  # two in one memory: left alone
    assert len(calls) == 2
