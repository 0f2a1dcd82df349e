"""Owns: tests of nested tensors of the strided layout: the same as on the CPU, with gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torch_fl  # noqa: F401  (makes the device)

D = "flagos"
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")


def nested(device: str, *, grad: bool = False) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    parts = [torch.randn(length, 4, generator=generator) for length in (2, 3, 5)]
    return torch.nested.nested_tensor(parts, device=device, requires_grad=grad)


def same(device: Tensor, host: Tensor) -> bool:
    if device.is_nested != host.is_nested:
        return False
    if not host.is_nested:
        return torch.equal(device.cpu(), host)
    pairs = zip(device.unbind(), host.unbind(), strict=True)
    return all(torch.equal(ours.cpu(), theirs) for ours, theirs in pairs)


def _from_mask(t: Tensor) -> Tensor:
    mask = torch.tensor([[True, True, False], [True, True, True]], device=t.device)
    return torch._nested_tensor_from_mask(torch.ones(2, 3, 4, device=t.device), mask)


OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "unbind": lambda t: t.unbind()[1],
    "select": lambda t: t[2],
    "padded": lambda t: t.to_padded_tensor(0.5),
    "from a mask": _from_mask,
    "from tensors": lambda t: torch.nested.as_nested_tensor([x * 2 for x in t.unbind()]),
    "add": lambda t: t + t,
    "mul": lambda t: t * 2.0,
    "gelu": F.gelu,
    "linear": lambda t: F.linear(t, torch.ones(3, 4, device=t.device)),
    "softmax": lambda t: t.softmax(-1),
    "layer_norm": lambda t: F.layer_norm(
        t, (4,), torch.ones(4, device=t.device), torch.ones(4, device=t.device)
    ),
    "bmm": lambda t: torch.bmm(t, t.transpose(1, 2).contiguous()),
    "transposed": lambda t: t.transpose(1, 2).contiguous(),
    "chunk": lambda t: t.chunk(2, -1)[1].contiguous(),
    "clone": lambda t: t.clone(),
    "in place": lambda t: t.clone().mul_(3.0),
    "half": lambda t: t.half().float(),
    "zeros_like": torch.zeros_like,
    "sizes": lambda t: t._nested_tensor_size(),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str) -> None:
    operator = OPERATORS[name]
    device, host = operator(nested(D)), operator(nested("cpu"))
    assert same(device, host)
    assert device.device.type == (D if name != "sizes" else "cpu")


def test_parts_are_views() -> None:
    tensor = nested(D)
    tensor[1].fill_(7.0)
    assert tensor.unbind()[1].eq(7).all()
    assert not tensor.unbind()[0].eq(7).any()
    assert f"{D}:0" in repr(tensor)


@pytest.mark.parametrize(("source", "destination"), [("cpu", D), (D, "cpu"), (D, D)])
def test_copies(source: str, destination: str) -> None:
    assert same(nested(source).to(destination).cpu(), nested("cpu"))
    target = nested(destination)
    target.mul_(0).copy_(nested(source))
    assert same(target.cpu(), nested("cpu"))


def test_gradients() -> None:
    grads = []
    for device in (D, "cpu"):
        leaf = nested(device, grad=True)
        weight = torch.ones(3, 4, device=device, requires_grad=True)
        F.linear(leaf * leaf, weight).to_padded_tensor(0.0).sin().sum().backward()
        grads.append((leaf.grad, weight.grad))
    (ours, weight), (theirs, host_weight) = grads
    assert same(ours, theirs)
    assert torch.equal(weight.cpu(), host_weight)
    parts = [torch.ones(n, device=D, requires_grad=True) for n in (2, 3)]
    (torch.nested.as_nested_tensor(parts) * 3).to_padded_tensor(0.0).sum().backward()
    assert [part.grad.tolist() for part in parts] == [[3, 3], [3, 3, 3]]


def test_attention_over_sequences_of_different_lengths() -> None:
    def attention(device: str) -> Tensor:
        generator = torch.Generator().manual_seed(1)
        parts = [torch.randn(2, length, 4, generator=generator) for length in (3, 6)]
        q = torch.nested.nested_tensor(parts, device=device)
        return F.scaled_dot_product_attention(q, q, q).to_padded_tensor(0.0)

    torch.testing.assert_close(attention(D).cpu(), attention("cpu"))


@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_packs_padded_batches(norm_first: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first).eval()
    batch = torch.randn(3, 5, 8)
    padding = torch.arange(5)[None] >= torch.tensor([5, 3, 2])[:, None]
    with torch.no_grad():
        host = encoder(batch, src_key_padding_mask=padding)
        device = encoder.to(D)(batch.to(D), src_key_padding_mask=padding.to(D))
    torch.testing.assert_close(device.cpu(), host)
