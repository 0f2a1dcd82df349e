"""Owns: flagos tensors as tensors of the device that flagos stands on, and back, without a copy.

For libraries that take only the target's own tensors. docs/interop.md says what works without this:
operators of other libraries, Triton kernels and DLPack take flagos tensors as they are.
"""

from __future__ import annotations

import torch

from torch_fl import _C

__all__ = ["as_flagos", "as_target"]


def as_target(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor`, which is on flagos, as a tensor of the target ("cpu" on the host backend).

    Both share the memory for as long as either lives, and the target's streams are flagos'. The
    result has the same shape, strides and dtype, and no part in autograd: what is written through
    it is not counted as a change of `tensor`.

    Raises:
        ValueError: `tensor` is not on flagos.
        NotImplementedError: it is not strided (sparse, quantized).
    """
    return _C.to_target(tensor.detach())


def as_flagos(tensor: torch.Tensor, device: torch.device | int | None = None) -> torch.Tensor:
    """`tensor`, which is on the target, as a flagos tensor; otherwise as `as_target`.

    Args:
        tensor: strided, on the target.
        device: whose it is, where the target's tensors have no index, as on the host backend;
            elsewhere the index is the tensor's own. Default: the current device.

    Raises:
        ValueError: `tensor` is not on the target.
        NotImplementedError: it is not strided (sparse, quantized).
    """
    if device is None:
        index = torch.accelerator.current_device_index()
    elif isinstance(device, int):
        index = device
    else:
        index = torch.device(device).index or 0
    return _C.from_target(tensor.detach(), index)
