"""Owns: copies between the devices of one process, for `torch.nn.DataParallel` and its like.

Reason: `torch.nn.parallel` asks `torch.accelerator` for devices and streams, but its broadcast,
scatter and gather are native functions that only CUDA's build has and that only take CUDA's
tensors. Here are the same ones for flagos; CUDA's own go on getting CUDA's tensors. And the threads
of replicas get the state of CUDA's autocast, so here they bring flagos' along. Dated 2026-11, torch
2.11 to 2.15. Held by tests/two_devices/test_data_parallel.py.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

Tensors = Sequence[torch.Tensor]
_MODULES = ("parallel_apply", "data_parallel")
_CPU = -1  # the index by which these functions name the CPU as a destination


def install() -> None:
    """Adds flagos to the native functions below `torch.nn.parallel`."""
    for name, ours in _FUNCTIONS.items():
        setattr(torch._C, name, unless_on_cuda(getattr(torch._C, name, None), ours))
    # Asked for every sum of gradients; without CUDA it warns that NCCL is missing.
    nccl = torch.nn.parallel.comm.nccl
    nccl.is_available = unless_on_cuda(nccl.is_available, lambda _tensors: False)
    # The package's name for it is the function, so the modules are found by theirs.
    for module in (torch.nn.parallel, *(sys.modules[f"torch.nn.parallel.{m}"] for m in _MODULES)):
        vars(module)["parallel_apply"] = _with_autocast(vars(module)["parallel_apply"])


def _with_autocast(apply: Callable[..., Any]) -> Callable[..., Any]:
    """`apply`, PyTorch's parallel_apply, with the caller's autocast in the replicas' threads."""

    @functools.wraps(apply)
    def parallel_apply(modules: Sequence[Callable[..., Any]], *args: Any, **kwargs: Any) -> Any:
        if not torch.is_autocast_enabled("flagos"):
            return apply(modules, *args, **kwargs)
        dtype, cached = torch.get_autocast_dtype("flagos"), torch.is_autocast_cache_enabled()

        def region() -> torch.autocast:  # one for each thread: it keeps what was before
            return torch.autocast("flagos", dtype, cache_enabled=cached)

        return apply([region()(module) for module in modules], *args, **kwargs)

    return parallel_apply


def unless_on_cuda(native: Callable[..., Any] | None, ours: Callable[..., Any]) -> Any:
    """`ours`, but `native`, where this build has one, for what it can take and we cannot."""
    if native is None:
        return ours

    @functools.wraps(ours)
    def chosen(tensors: Any, *args: Any) -> Any:
        first = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors))
        return (native if first.device.type == "cuda" else ours)(tensors, *args)

    return chosen


def _device(index: int) -> torch.device:
    return torch.device("cpu") if index == _CPU else torch.device("flagos", index)


def _move(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    return tensor.to(device, non_blocking=True)


def broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
    """`tensor` on each device: itself where it is, copies elsewhere."""
    return [_move(tensor, _device(index)) for index in devices]


def broadcast_out(tensor: torch.Tensor, out: Tensors) -> list[torch.Tensor]:
    """Copies `tensor` into each of `out`, which have its shape. Raises RuntimeError if not."""
    for position, result in enumerate(out):
        if result.device.type != "flagos" or result.shape != tensor.shape:
            raise RuntimeError(
                f"broadcast: out[{position}] must be a flagos tensor of shape "
                f"{tuple(tensor.shape)}, but has shape {tuple(result.shape)} on {result.device}"
            )
        result.copy_(tensor, non_blocking=True)
    return list(out)


def broadcast_coalesced(
    tensors: Tensors, devices: Sequence[int], buffer_size: int
) -> list[list[torch.Tensor]]:
    """`tensors`, which are on the first device, on each device.

    Nothing is gathered into buffers of `buffer_size` bytes: that saves nothing where a copy
    between devices has no launch of its own.
    """
    home = _device(devices[0])
    for position, tensor in enumerate(tensors):
        if tensor.device != home:
            raise RuntimeError(
                f"broadcast_coalesced: all tensors must be on {home}, the first device, but "
                f"tensor {position} is on {tensor.device}. Move them there first."
            )
    return [[_move(tensor, _device(index)) for tensor in tensors] for index in devices]


def scatter(
    tensor: torch.Tensor,
    devices: Sequence[int],
    sizes: Sequence[int] | None,
    dim: int,
    streams: Sequence[torch.Stream | None] | None,
) -> list[torch.Tensor]:
    """Parts of `tensor` along `dim`, one to a device; `sizes` or as equal as can be."""
    if sizes is None:
        parts = tensor.chunk(len(devices), dim)
    elif len(sizes) != len(devices) or sum(sizes) != tensor.size(dim):
        raise RuntimeError(
            f"scatter: chunk_sizes must have one size for each of {len(devices)} devices, "
            f"{tensor.size(dim)} in all, but is {list(sizes)}"
        )
    else:
        parts = tensor.split_with_sizes(list(sizes), dim)
    moved = []
    for position, (part, index) in enumerate(zip(parts, devices, strict=False)):
        with _on(streams, position):
            moved.append(_move(part, _device(index)))
    return moved


def scatter_out(
    tensor: torch.Tensor,
    out: Tensors,
    dim: int,
    streams: Sequence[torch.Stream | None] | None,
) -> list[torch.Tensor]:
    """Copies parts of `tensor` along `dim` into `out`, as large as each is."""
    sizes = [result.size(dim) for result in out]
    if sum(sizes) != tensor.size(dim):
        raise RuntimeError(
            f"scatter: the sizes of out along dimension {dim} must sum to {tensor.size(dim)}, "
            f"but are {sizes}"
        )
    for position, part in enumerate(tensor.split_with_sizes(sizes, dim)):
        with _on(streams, position):
            broadcast_out(part, [out[position]])
    return list(out)


def gather(tensors: Tensors, dim: int, destination: int | None) -> torch.Tensor:
    """`tensors` along `dim`, on flagos device `destination` (None: the current one; -1: the CPU).

    Raises RuntimeError where there are none, or where other dimensions than `dim` differ.
    """
    if not tensors:
        raise RuntimeError("gather: expected at least one tensor, but got none")
    index = torch.accelerator.current_device_index() if destination is None else destination
    shape = list(tensors[0].shape)
    shape[dim] = sum(tensor.size(dim) for tensor in tensors)
    result = torch.empty(shape, dtype=tensors[0].dtype, device=_device(index))
    return gather_out(tensors, result, dim)


def gather_out(tensors: Tensors, out: torch.Tensor, dim: int) -> torch.Tensor:
    """Copies `tensors` into `out`, one behind the other along `dim`."""
    sizes = [tensor.size(dim) for tensor in tensors]
    if sum(sizes) != out.size(dim):
        raise RuntimeError(
            f"gather: out has {out.size(dim)} along dimension {dim}, but the tensors have {sizes}"
        )
    for position, part in enumerate(out.split_with_sizes(sizes, dim)):
        if part.shape != tensors[position].shape:
            raise RuntimeError(
                f"gather: tensor {position} has shape {tuple(tensors[position].shape)} where "
                f"{tuple(part.shape)} is expected: only dimension {dim} may differ"
            )
        part.copy_(tensors[position], non_blocking=True)
    return out


def _on(streams: Sequence[torch.Stream | None] | None, position: int) -> Any:
    stream = streams[position] if streams is not None else None
    return stream if stream is not None else contextlib.nullcontext()


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "_broadcast": broadcast,
    "_broadcast_out": broadcast_out,
    "_broadcast_coalesced": broadcast_coalesced,
    "_scatter": scatter,
    "_scatter_out": scatter_out,
    "_gather": gather,
    "_gather_out": gather_out,
}
