"""Attention over jagged tensors on a target without a fused kernel for it."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
import torch
from parity import FLAGOS, uneven
from torch.nested._internal import ops, sdpa
from torch.nn.functional import scaled_dot_product_attention

pytestmark = pytest.mark.filterwarnings("ignore:.*nested tensors.*prototype")

LENGTHS = (2, 5, 1)
HEADS, WIDTH = 2, 8


def sequences(seed: int, heads: int = HEADS) -> list[torch.Tensor]:
    return [uneven((length, heads, WIDTH)) + seed / 5 for length in LENGTHS]


def jagged(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(parts, layout=torch.jagged)


def on_flagos(parts: list[torch.Tensor]) -> list[torch.Tensor]:
    return [x.detach().to(FLAGOS).requires_grad_() for x in parts]


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}])
def test_values_and_gradients_are_those_of_each_sequence(options: dict[str, Any]) -> None:
    wanted = [[x.requires_grad_() for x in sequences(seed)] for seed in range(3)]
    given = [on_flagos(parts) for parts in wanted]
    query, key, value = (jagged(parts).transpose(1, 2) for parts in given)
    output = scaled_dot_product_attention(query, key, value, **options)
    assert output.is_nested
    assert output.shape == query.shape
    packed = output.transpose(1, 2).contiguous()
    for result, *parts in zip(packed.unbind(), *wanted, strict=True):
        heads = [x.transpose(0, 1) for x in parts]
        expected = scaled_dot_product_attention(*heads, **options).transpose(0, 1)
        torch.testing.assert_close(result.cpu(), expected)
        expected.square().sum().backward()
    packed.values().square().sum().backward()
    for ours, theirs in zip(chain(*given), chain(*wanted), strict=True):
        assert ours.grad is not None
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad)


def test_as_the_cpus_composition() -> None:
    query, key, value = (jagged(sequences(seed)) for seed in range(3))
    expected = scaled_dot_product_attention(*(x.transpose(1, 2) for x in (query, key, value)))
    given = [x.to(FLAGOS).transpose(1, 2) for x in (query, key, value)]
    output = scaled_dot_product_attention(*given)
    torch.testing.assert_close(
        output.transpose(1, 2).contiguous().values().cpu(),
        expected.transpose(1, 2).contiguous().values(),
    )


def test_holes_between_sequences_stay() -> None:
    values = uneven((10, HEADS, WIDTH)).to(FLAGOS)
    offsets = torch.tensor([0, 4, 10], device=FLAGOS)
    lengths = torch.tensor([2, 5], device=FLAGOS)
    tensor = torch.nested.nested_tensor_from_jagged(values, offsets, lengths)
    output = scaled_dot_product_attention(*(tensor.transpose(1, 2) for _ in range(3)))
    for result, part in zip(output.transpose(1, 2).unbind(), tensor.unbind(), strict=True):
        heads = part.transpose(0, 1)
        expected = scaled_dot_product_attention(heads, heads, heads).transpose(0, 1)
        torch.testing.assert_close(result, expected)


def test_grouped_heads() -> None:
    query = jagged(sequences(0, heads=4)).to(FLAGOS).transpose(1, 2)
    key = jagged(sequences(1)).to(FLAGOS).transpose(1, 2)
    output = scaled_dot_product_attention(query, key, key, enable_gqa=True)
    assert output.shape == query.shape


def test_autocast() -> None:
    query = jagged(sequences(0)).to(FLAGOS).transpose(1, 2)
    with torch.autocast("flagos", torch.bfloat16):
        assert scaled_dot_product_attention(query, query, query).dtype == torch.bfloat16


def test_the_entry_point_is_the_one_that_pytorch_calls() -> None:
    # Contract: what is wrapped, and what it leans on.
    entry: Any = sdpa.jagged_scaled_dot_product_attention
    assert hasattr(entry, "__wrapped__")
    assert ops.jagged_scaled_dot_product_attention is entry
    for name in ("_autocast", "_validate_sdpa_input", "SDPAParams", "math_sdp_enabled"):
        assert callable(getattr(sdpa, name))
    query = jagged(sequences(0)).to(FLAGOS).transpose(1, 2)
    with pytest.raises(RuntimeError, match="No viable backend"):  # what it is wrapped for
        entry.__wrapped__(query, query, query, is_causal=True)
