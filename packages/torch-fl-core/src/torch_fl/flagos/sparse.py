"""Owns: the sparse tensor types of `torch.flagos` that PyTorch keeps for old code."""

from __future__ import annotations

import torch

from torch_fl.flagos._legacy_tensors import DTYPES, TensorType
from torch_fl.flagos.devices import DEVICE_TYPE


def _tensor(kind: str) -> TensorType:
    return TensorType(
        f"{kind}Tensor", f"torch.{DEVICE_TYPE}.sparse", DTYPES[kind], torch.sparse_coo
    )


BFloat16Tensor = _tensor("BFloat16")
ByteTensor = _tensor("Byte")
CharTensor = _tensor("Char")
DoubleTensor = _tensor("Double")
FloatTensor = _tensor("Float")
HalfTensor = _tensor("Half")
IntTensor = _tensor("Int")
LongTensor = _tensor("Long")
ShortTensor = _tensor("Short")

__all__ = [
    "BFloat16Tensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
]
