"""Owns: attention over jagged tensors where the target has no fused kernel for it.

Reason: PyTorch then goes through nested tensors of the strided layout, which refuse causal masks,
grouped heads and holes between sequences. Here every sequence is attended to by itself instead,
with the dense kernels and with gradients. PyTorch offers no hook between the choice and the
composition, so the function that makes both is wrapped. Dated 2026-11, torch 2.11 to 2.13. Held by
tests/interop/test_jagged_attention.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from torch_fl._compat.importing import when_imported

Attention = Callable[..., torch.Tensor]

_NAME = "jagged_scaled_dot_product_attention"


def install() -> None:
    """Puts the composition in the place of PyTorch's, for flagos tensors."""
    # Whoever imports the module that calls it gets the one that defines it first.
    when_imported("torch.nested._internal.sdpa", _change)


def _change(module: ModuleType) -> None:
    setattr(module, _NAME, by_sequence(module, getattr(module, _NAME)))


def by_sequence(module: ModuleType, attend: Attention) -> Attention:
    """`attend`, PyTorch's own, for what it can do on flagos; else sequence by sequence."""

    @functools.wraps(attend)
    def attending(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        ours = (
            query.device.type == "flagos"
            and attn_mask is None
            and all(_is_heads_of_sequences(x) for x in (query, key, value))
            and module.math_sdp_enabled()
            and not _has_kernel(module, query, key, value, dropout_p, is_causal, enable_gqa)
        )
        if not ours:
            return attend(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        module._validate_sdpa_input(query, key, value, None, dropout_p, is_causal, scale)
        return _attend(query, key, value, dropout_p, is_causal, scale, enable_gqa)

    return attending


def _has_kernel(
    module: ModuleType, query: Any, key: Any, value: Any, dropout_p: float, *flags: bool
) -> bool:
    """Whether the target has a fused kernel, by PyTorch's rules and the user's switches."""
    params = module.SDPAParams(*module._autocast(query, key, value, None), dropout_p, *flags)
    return bool(
        (module.can_use_flash_attention(params) and module._can_use_flash_sdpa_jagged(params))
        or (
            module.can_use_efficient_attention(params)
            and module._can_use_efficient_sdpa_jagged(params)
        )
        or module.can_use_cudnn_attention(params)
    )


def _is_heads_of_sequences(tensor: Any) -> bool:
    """Whether a jagged tensor has shape (batch, heads, ragged, width)."""
    return isinstance(tensor, torch.Tensor) and (
        tensor.is_nested
        and tensor.layout == torch.jagged
        and tensor.dim() == 4
        and getattr(tensor, "_ragged_idx", None) == 2
    )


def _attend(
    query: Any,
    key: Any,
    value: Any,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> torch.Tensor:
    from torch.nested._internal.nested_tensor import nested_view_from_values_offsets_lengths

    sequences = zip(*(x.transpose(1, 2).unbind() for x in (query, key, value)), strict=True)
    outputs = []
    for queries, keys, values in sequences:  # (length, heads, width) each
        output = torch.nn.functional.scaled_dot_product_attention(
            queries.transpose(0, 1).unsqueeze(0),
            keys.transpose(0, 1).unsqueeze(0),
            values.transpose(0, 1).unsqueeze(0),
            dropout_p=dropout_p,
            is_causal=is_causal,
            scale=scale,
            enable_gqa=enable_gqa,
        )
        outputs.append(output.squeeze(0).transpose(0, 1))
    turned = query.transpose(1, 2)
    packed = nested_view_from_values_offsets_lengths(
        torch.cat(_with_holes(outputs, turned)),
        turned.offsets(),
        lengths=turned.lengths(),
        min_seqlen=turned._maybe_min_seqlen,
        max_seqlen=turned._maybe_max_seqlen,
    )
    result: torch.Tensor = packed.transpose(1, 2)
    return result


def _with_holes(outputs: list[torch.Tensor], like: Any) -> list[torch.Tensor]:
    """`outputs`, with zeros where a jagged tensor with lengths leaves room between sequences."""
    if like.lengths() is None:
        return outputs
    bounds = like.offsets().tolist()
    pieces = [outputs[0].new_zeros(bounds[0], *outputs[0].shape[1:])]
    for output, start, end in zip(outputs, bounds[:-1], bounds[1:], strict=True):
        pieces += [output, output.new_zeros(end - start - len(output), *output.shape[1:])]
    return pieces
