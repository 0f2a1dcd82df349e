"""Owns: how tensor types for old code behave, such as `torch.flagos.FloatTensor`.

They are no classes of tensors: isinstance asks for device, dtype and layout, a call makes a plain
tensor, and `tensor.type()` gives their name.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_fl.flagos.devices import DEVICE_TYPE

DTYPES = {
    "BFloat16": torch.bfloat16,
    "Bool": torch.bool,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Short": torch.int16,
}


class TensorType(type):
    """The type of `torch.flagos.FloatTensor` and its kind."""

    dtype: torch.dtype
    layout: torch.layout

    # `tensor.type(FloatTensor)` reads the C name of the class, which must be the whole path.
    def __new__(
        mcs, name: str, module: str, dtype: torch.dtype, layout: torch.layout
    ) -> TensorType:
        what = "Sparse tensors" if layout is torch.sparse_coo else "Tensors"
        members = {
            "__module__": module,
            "__doc__": f"{what} of {dtype} on {DEVICE_TYPE}. A call makes one as torch.{name} "
            "does: of sizes, uninitialised, or of a sequence of numbers.",
            "dtype": dtype,
            "layout": layout,
        }
        return super().__new__(mcs, f"{module}.{name}", (), members)

    def __init__(cls, *_: object) -> None:
        super().__init__(cls)

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        return super().__name__.rpartition(".")[2]

    @property
    def is_sparse(cls) -> bool:
        """Whether the tensors are sparse (COO)."""
        return cls.layout is torch.sparse_coo

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, torch.Tensor)
            and instance.device.type == DEVICE_TYPE
            and instance.dtype == cls.dtype
            and instance.layout == cls.layout
        )

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:
        like = torch.empty(0, dtype=cls.dtype, layout=cls.layout, device=DEVICE_TYPE)
        made: torch.Tensor = like.new(*args, **kwargs)
        return made

    def __getattr__(cls, name: str) -> Any:  # the methods, as in FloatTensor.add(a, b)
        return getattr(torch.Tensor, name)

    def __repr__(cls) -> str:
        return f"<class '{cls.__module__}.{cls.__name__}'>"
