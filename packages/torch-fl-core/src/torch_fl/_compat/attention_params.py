"""Owns: PyTorch's questions whether a fused attention can be used, for flagos tensors.

Reason: `torch.backends.cuda.can_use_flash_attention` and its like say no to whatever is not on a
device that they know by name, without a hook; attention over jagged tensors takes a slower road
then. What they ask is put to the target's own tensors over the same memory. Dated 2026-11, torch
2.11 to 2.15. Held by tests/interop/test_attention_params.py; on hardware by
packages/torch-fl-cuda/tests/hardware.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from torch_fl import _C

__all__ = ["asking_the_target", "install"]

Ask = Callable[..., bool]

_QUESTIONS = (
    "_can_use_flash_attention",
    "_can_use_mem_efficient_attention",
    "_can_use_cudnn_attention",
)


def install(target: str) -> None:
    """Answers for flagos tensors as for those of `target`; the CPU's answer is no as it is."""
    if target == "cpu":
        return
    for name in _QUESTIONS:
        if hasattr(torch._C, name):
            setattr(torch._C, name, asking_the_target(getattr(torch._C, name)))


def asking_the_target(ask: Ask) -> Ask:
    """`ask`, one of PyTorch's own, which sees the target's tensors where it is given flagos'."""

    @functools.wraps(ask)
    def asking(params: Any, debug: bool = False) -> bool:
        return ask(_for_target(params), debug)

    return asking


class _Other(Exception):
    """A tensor that has no memory to be seen as the target's, such as a fake one."""


def _for_target(params: Any) -> Any:
    if params.query.device.type != "flagos":
        return params
    tensors = (params.query, params.key, params.value, params.attn_mask)
    views: dict[int, torch.Tensor] = {}  # sequences that share their bounds go on sharing them
    try:
        query, key, value, mask = (_view(tensor, views) for tensor in tensors)
    except _Other:
        return params
    options = (params.dropout, params.is_causal, params.enable_gqa)
    return torch.backends.cuda.SDPAParams(query, key, value, mask, *options)


def _view(tensor: Any, views: dict[int, torch.Tensor]) -> Any:
    if tensor is None:
        return None
    if id(tensor) not in views:
        views[id(tensor)] = _jagged(tensor, views) if _is_jagged(tensor) else _strided(tensor)
    return views[id(tensor)]


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise _Other
    try:
        view = _C.to_target(tensor.detach())
    except (NotImplementedError, ValueError) as error:
        raise _Other from error
    return view.requires_grad_(tensor.requires_grad)


def _is_jagged(tensor: torch.Tensor) -> bool:
    return tensor.is_nested and tensor.layout == torch.jagged


def _jagged(tensor: Any, views: dict[int, torch.Tensor]) -> Any:
    view = type(tensor)(
        _strided(tensor.values().detach()),
        _view(tensor.offsets(), views),
        lengths=_view(tensor.lengths(), views),
        _ragged_idx=tensor._ragged_idx,
    )
    return view.requires_grad_(tensor.requires_grad)
