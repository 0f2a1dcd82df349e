"""Owns: how sparse flagos tensors are pickled: as their indices and values, as on every device.

Reason: PyTorch takes a tensor without storage on a device from outside for one whose memory it
cannot read, and pickles a CPU copy that becomes a device tensor while it is unpickled. Ties are
lost by that, a callable `map_location` is refused, and in the legacy file format the copy is made
before the file's data is read. Dated 2026-11, torch 2.11 to 2.15. Held by
tests/interop/test_serialization.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

Reduce = Callable[[torch.Tensor, int], Any]

_BY_ROW = (torch.sparse_csr, torch.sparse_bsr)
_BY_COLUMN = (torch.sparse_csc, torch.sparse_bsc)


def install() -> None:
    """Pickles sparse tensors on flagos as PyTorch does elsewhere."""
    tensor: Any = torch.Tensor
    tensor._reduce_ex_internal = _reducing(tensor._reduce_ex_internal)


def _reducing(reduce: Reduce) -> Reduce:
    """`reduce`, PyTorch's own, but for sparse tensors on flagos."""

    @functools.wraps(reduce)
    def reduce_ex(tensor: torch.Tensor, protocol: int) -> Any:
        if tensor.layout is torch.strided or tensor.device.type != "flagos":
            return reduce(tensor, protocol)
        parts = _parts(tensor)
        if parts is None:
            return reduce(tensor, protocol)
        return torch._utils._rebuild_sparse_tensor, (tensor.layout, parts)

    return reduce_ex


def _parts(tensor: torch.Tensor) -> tuple[Any, ...] | None:
    """What PyTorch rebuilds a sparse tensor from; None for other layouts."""
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values(), tensor.size(), tensor.is_coalesced()
    if tensor.layout in _BY_ROW:
        return tensor.crow_indices(), tensor.col_indices(), tensor.values(), tensor.size()
    if tensor.layout in _BY_COLUMN:
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values(), tensor.size()
    return None
