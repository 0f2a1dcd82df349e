"""Owns: a deliberately wrong ``add``, to show that the comparison sees it.

It overrides ``aten::add`` (functional, in-place and ``out=``) on one dispatch key. While active,
each of them adds 1000 too much; otherwise they do what they did before.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

_OVERLOADS: Final = ("add.Tensor", "add_.Tensor", "add.out")
_EXCESS: Final = 1000


class WrongAdd:
    """The override for one device type, installed for as long as the object lives."""

    def __init__(self, device_type: str) -> None:
        key = torch._C._dispatch_key_for_device(device_type)
        self.active = False
        untyped: Any = torch.library
        self._library = untyped.Library("aten", "IMPL")
        with warnings.catch_warnings():
            # PyTorch warns that a kernel is overridden, which is what is wanted here.
            warnings.simplefilter("ignore")
            for overload in _OVERLOADS:
                self._library.impl(overload, self._wrong(overload, key), key, with_keyset=True)

    def _wrong(self, overload: str, key: str) -> Callable[..., Any]:
        original = torch.library.get_kernel(f"aten::{overload}", key)

        def kernel(
            keys: torch.DispatchKeySet, first: Any, second: Any, *more: Any, **keyword: Any
        ) -> Any:
            first, second = _as_tensors(first, second)
            result = original.call_boxed(keys, first, second, *more, **keyword)
            if self.active:
                if result.dtype is torch.bool:
                    result.logical_not_()
                else:
                    result.sub_(-_EXCESS)  # sub_ and not add_: that would come back here
            return result

        return kernel

    @contextmanager
    def during(self) -> Iterator[None]:
        """Wrong inside, right outside; in all threads, because backward runs on one of its own."""
        self.active = True
        try:
            yield
        finally:
            self.active = False


def _as_tensors(*operands: Any) -> list[torch.Tensor]:
    """Kernels in Python get a number for a tensor that wraps one; the original wants a tensor.

    It gets the dtype of the result, so that it cannot promote where the number would not.
    """
    dtype = torch.result_type(*operands)
    return [
        operand if isinstance(operand, torch.Tensor) else torch.scalar_tensor(operand, dtype=dtype)
        for operand in operands
    ]
