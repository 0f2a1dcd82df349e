"""FlexAttention without torch.compile: values, gradients, the list of names that gates it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from parity import FLAGOS, uneven
from torch.nn.attention import flex_attention as flex

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def inputs(length: int = 32) -> Inputs:
    query, key, value = (uneven((1, 2, length, 8), torch.float32) + i / 7 for i in range(3))
    return query, key, value


def reference(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """What `score` and `causal` ask for, in plain operators."""
    length = query.size(-2)
    row, column = torch.arange(length)[:, None], torch.arange(length)[None, :]
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.size(-1)) + (row - column) / 10
    return scores.masked_fill(row < column, -math.inf).softmax(-1) @ value


def score(value: Any, _batch: Any, _head: Any, row: Any, column: Any) -> Any:
    return value + (row - column) / 10


def causal(_batch: Any, _head: Any, row: Any, column: Any) -> Any:
    return row >= column


def test_values_and_gradients() -> None:
    given = [x.to(FLAGOS).requires_grad_() for x in inputs()]
    wanted = [x.clone().requires_grad_() for x in inputs()]
    mask = flex.create_block_mask(causal, None, None, 32, 32, device="flagos")
    output = flex.flex_attention(*given, score_mod=score, block_mask=mask)
    assert isinstance(output, torch.Tensor)
    assert output.device == FLAGOS
    expected = reference(*wanted)
    torch.testing.assert_close(output.cpu(), expected)
    weights = uneven(expected.shape)
    output.backward(weights.to(FLAGOS))
    expected.backward(weights)
    for ours, theirs in zip(given, wanted, strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad)


def test_block_masks_move() -> None:
    mask = flex.create_block_mask(causal, None, None, 32, 32, device="cpu").to("flagos")
    assert mask.kv_num_blocks.device == FLAGOS
    assert mask.to_dense().device == FLAGOS


def test_the_auxiliary_output() -> None:
    query, key, value = (x.to(FLAGOS) for x in inputs())
    _, aux = flex.flex_attention(query, key, value, return_aux=flex.AuxRequest(lse=True))
    expected = torch.logsumexp(
        (query.cpu() @ key.cpu().transpose(-1, -2)) / math.sqrt(query.size(-1)), -1
    )
    torch.testing.assert_close(aux.lse.cpu(), expected)


def test_other_devices_are_checked_as_before() -> None:
    query, key, value = inputs()
    with pytest.raises(NotImplementedError, match="backward on CPU"):
        flex.flex_attention(query.requires_grad_(), key, value)
    # Contract: PyTorch's own check, which the adaptation is for. When this fails it can go.
    own: Any = flex._validate_device
    with pytest.raises(ValueError, match="only supported on"):
        own.__wrapped__(*(x.to(FLAGOS) for x in inputs()))
