"""Questions whether a fused attention can be used are put to the target's own tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.backends.cuda import SDPAParams

from torch_fl._compat import attention_params

pytestmark = pytest.mark.filterwarnings("ignore:.*nested tensors.*prototype")

NO_OPTIONS = (0.0, False, False)


class Asked:
    """A question of PyTorch's that keeps what it was asked about."""

    def __init__(self) -> None:
        self.params: Any = None
        self.debug = False

    def __call__(self, params: Any, debug: bool = False) -> bool:
        self.params, self.debug = params, debug
        return True


def heads(**options: Any) -> torch.Tensor:
    return torch.ones(2, 4, 8, 16, device="flagos", **options)


def test_flagos_tensors_are_seen_as_the_targets() -> None:
    asked = Asked()
    query, key, value = heads(requires_grad=True), heads().transpose(1, 2), heads()
    mask = torch.ones(8, 8, device="flagos")
    params = SDPAParams(query, key, value, mask, 0.5, True, True)
    assert attention_params.asking_the_target(asked)(params, debug=True)
    seen = asked.params
    assert asked.debug
    assert (seen.dropout, seen.is_causal, seen.enable_gqa) == (0.5, True, True)
    for ours, targets in (
        (query, seen.query),
        (key, seen.key),
        (value, seen.value),
        (mask, seen.attn_mask),
    ):
        assert targets.device.type == "cpu"
        assert targets.data_ptr() == ours.data_ptr()
        assert (targets.shape, targets.stride()) == (ours.shape, ours.stride())
        assert targets.requires_grad == ours.requires_grad


def test_jagged_tensors_too() -> None:
    asked = Asked()
    parts = [torch.ones(length, 4, 16, device="flagos") for length in (2, 5)]
    query = torch.nested.as_nested_tensor(parts, layout=torch.jagged).transpose(1, 2)
    params = SDPAParams(query, query * 2, query, None, *NO_OPTIONS)
    assert attention_params.asking_the_target(asked)(params)
    seen = asked.params
    for targets in (seen.query, seen.key, seen.value):
        assert targets.is_nested
        assert targets.device.type == "cpu"
        assert targets.dim() == 4
        assert targets.shape == seen.query.shape, "the same lengths"
        assert targets.size(-1) == 16
        assert (targets._ragged_idx, targets.stride()[-1]) == (2, 1)
    assert seen.attn_mask is None


def test_others_are_asked_about_as_they_are() -> None:
    asked = Asked()
    ask = attention_params.asking_the_target(asked)
    plain = torch.ones(2, 4, 8, 16)
    fake = torch._subclasses.FakeTensorMode()
    for tensor in (plain, fake.from_tensor(heads())):
        params = SDPAParams(tensor, tensor, tensor, None, *NO_OPTIONS)
        assert ask(params)
        assert asked.params is params


def test_the_questions_are_pytorchs() -> None:
    # What the public functions ask by, at every call.
    for name in attention_params._QUESTIONS:
        assert callable(getattr(torch._C, name))
    for function, name in (
        (torch.backends.cuda.can_use_flash_attention, attention_params._QUESTIONS[0]),
        (torch.backends.cuda.can_use_efficient_attention, attention_params._QUESTIONS[1]),
        (torch.backends.cuda.can_use_cudnn_attention, attention_params._QUESTIONS[2]),
    ):
        assert name in function.__code__.co_names
