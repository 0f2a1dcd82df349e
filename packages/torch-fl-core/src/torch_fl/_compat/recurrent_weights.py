"""Owns: a recurrent layer's weights in one piece of memory, on a target whose library wants it.

Reason: `nn.RNNBase.flatten_parameters` asks for CUDA by name. Without it the library's layer copies
all weights in each call, and warns. The target's own answer is asked here, with its own tensors.
Dated 2026-11, torch 2.11 to 2.15. Held by tests/test_recurrent_weights.py; on hardware by
packages/torch-fl-cuda/tests/hardware.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from torch_fl import _C

Flatten = Callable[[Any], None]


def install() -> None:
    """Lets recurrent layers on flagos keep their weights as the target's would."""
    layer: Any = torch.nn.RNNBase
    layer.flatten_parameters = also_on_flagos(layer.flatten_parameters)


def also_on_flagos(flatten: Flatten) -> Flatten:
    """`flatten`, PyTorch's own, and the same for weights on flagos."""

    @functools.wraps(flatten)
    def flatten_parameters(layer: Any) -> None:
        weights = layer._flat_weights
        complete = len(weights) == len(layer._flat_weights_names)
        if not complete or not all(_is_ours(weight) for weight in weights):
            flatten(layer)
        elif _wanted(weights):
            _flatten(layer)

    return flatten_parameters


def _is_ours(weight: Any) -> bool:
    return isinstance(weight, torch.Tensor) and weight.device.type == "flagos"


def _wanted(weights: list[torch.Tensor]) -> bool:
    """As PyTorch decides it: of one dtype and device, acceptable, none in another's memory."""
    first = weights[0]
    return (
        all(w.dtype == first.dtype and w.device == first.device for w in weights)
        and len({weight.data_ptr() for weight in weights}) == len(weights)
        and torch.backends.cudnn.is_acceptable(_C.to_target(first.detach()))
    )


def _flatten(layer: Any) -> None:
    from torch.backends.cudnn import rnn

    weights = layer._flat_weights
    in_a_layer = (4 if layer.bias else 2) + (layer.proj_size > 0)
    with torch.accelerator.device_index(weights[0].device.index), torch.no_grad():
        if torch._use_cudnn_rnn_flatten_weight():
            torch._cudnn_rnn_flatten_weight(
                weights,
                in_a_layer,
                layer.input_size,
                rnn.get_cudnn_mode(layer.mode),
                layer.hidden_size,
                layer.proj_size,
                layer.num_layers,
                layer.batch_first,
                bool(layer.bidirectional),
            )
