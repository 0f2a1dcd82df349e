"""Owns: the tensor and storage types of `torch.flagos` that PyTorch keeps for old code."""

from __future__ import annotations

import torch

from torch_fl._compat import legacy_storage
from torch_fl.flagos._legacy_tensors import DTYPES, TensorType
from torch_fl.flagos.devices import DEVICE_TYPE

_MODULE = f"torch.{DEVICE_TYPE}"


def _tensor(kind: str) -> TensorType:
    return TensorType(f"{kind}Tensor", _MODULE, DTYPES[kind], torch.strided)


def _storage(kind: str, dtype: torch.dtype) -> type:
    doc = (
        f"A storage of {dtype} on {DEVICE_TYPE}, for old code; torch.UntypedStorage is the new way."
    )
    return legacy_storage.storage_class(f"{kind}Storage", dtype, _MODULE, doc)


BFloat16Tensor = _tensor("BFloat16")
BoolTensor = _tensor("Bool")
ByteTensor = _tensor("Byte")
CharTensor = _tensor("Char")
DoubleTensor = _tensor("Double")
FloatTensor = _tensor("Float")
HalfTensor = _tensor("Half")
IntTensor = _tensor("Int")
LongTensor = _tensor("Long")
ShortTensor = _tensor("Short")

BFloat16Storage = _storage("BFloat16", torch.bfloat16)
BoolStorage = _storage("Bool", torch.bool)
ByteStorage = _storage("Byte", torch.uint8)
CharStorage = _storage("Char", torch.int8)
ComplexDoubleStorage = _storage("ComplexDouble", torch.complex128)
ComplexFloatStorage = _storage("ComplexFloat", torch.complex64)
DoubleStorage = _storage("Double", torch.float64)
FloatStorage = _storage("Float", torch.float32)
HalfStorage = _storage("Half", torch.float16)
IntStorage = _storage("Int", torch.int32)
LongStorage = _storage("Long", torch.int64)
ShortStorage = _storage("Short", torch.int16)

__all__ = [
    "BFloat16Storage",
    "BFloat16Tensor",
    "BoolStorage",
    "BoolTensor",
    "ByteStorage",
    "ByteTensor",
    "CharStorage",
    "CharTensor",
    "ComplexDoubleStorage",
    "ComplexFloatStorage",
    "DoubleStorage",
    "DoubleTensor",
    "FloatStorage",
    "FloatTensor",
    "HalfStorage",
    "HalfTensor",
    "IntStorage",
    "IntTensor",
    "LongStorage",
    "LongTensor",
    "ShortStorage",
    "ShortTensor",
]
