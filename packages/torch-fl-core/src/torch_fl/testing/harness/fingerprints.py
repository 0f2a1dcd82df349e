"""Owns: what a call left behind, in a few digits that are equal only where every bit is.

With them two devices are compared that cannot work in one process, such as flagos and the device
that it stands on: autograd's engine serves one accelerator.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from .call import Outcome
from .tree import walk


def fingerprint(outcome: Outcome, *, values: bool) -> str:
    """Sixteen hex digits of results and arguments: values, dtypes, shapes, strides, versions.

    Not of the device's name. `values` is False where memory is left as it was found.
    """
    digest = hashlib.blake2b(digest_size=8)
    for path, leaf in walk((outcome.result, outcome.inputs, outcome.version_bumps)):
        digest.update(path.encode())
        if isinstance(leaf, torch.Tensor):
            _add_tensor(digest, leaf, values)
        elif isinstance(leaf, torch.device):
            digest.update(b"device")
        else:
            digest.update(repr(leaf).encode())
    return digest.hexdigest()


def _add_tensor(digest: Any, tensor: torch.Tensor, values: bool) -> None:
    facts = (tensor.dtype, tuple(tensor.shape), tensor.layout, tensor.requires_grad)
    tensor = tensor.detach()
    digest.update(repr(facts).encode())
    if tensor.layout is torch.strided and not tensor.is_nested:
        digest.update(repr(tensor.stride()).encode())
    if values:
        for part in _parts(tensor):
            digest.update(_bytes(part))


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The strided tensors whose values are the tensor's."""
    if tensor.is_nested:
        return list(tensor.unbind())
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor.int_repr() if tensor.is_quantized else tensor]


def _bytes(tensor: torch.Tensor) -> bytes:
    plain = tensor.cpu().resolve_conj().resolve_neg()
    # A copy in any case: of one element `contiguous` keeps the stride, whatever it is.
    row = plain.clone(memory_format=torch.contiguous_format).reshape(-1)
    return row.view(torch.uint8).numpy().tobytes()
