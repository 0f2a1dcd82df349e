"""Owns: deliberately wrong operators, to show that a suite sees them.

Operators are overridden on one dispatch key. While active, each adds 1000 too much (a bool is
negated), in its result or, if it has none, in its first argument; and what it raises has other
words. Otherwise they do what they did before.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch

from . import tree

_EXCESS: Final = 1000


class Wrong:
    """The overrides for one device type, installed for as long as the object lives.

    Args:
        device_type: on whose dispatch key.
        operators: overloads of aten, such as ``add.Tensor`` or ``addmm``.
    """

    def __init__(self, device_type: str, operators: Sequence[str]) -> None:
        key = torch._C._dispatch_key_for_device(device_type)
        self.active = False
        untyped: Any = torch.library
        self._library = untyped.Library("aten", "IMPL")
        with warnings.catch_warnings():
            # PyTorch warns that a kernel is overridden, which is what is wanted here.
            warnings.simplefilter("ignore")
            for overload in operators:
                self._library.impl(overload, self._wrong(overload, key), key, with_keyset=True)

    def _wrong(self, overload: str, key: str) -> Callable[..., Any]:
        original = torch.library.get_kernel(f"aten::{overload}", key)
        takes_tensor = _tensor_arguments(overload)

        def kernel(keys: torch.DispatchKeySet, *arguments: Any, **keyword: Any) -> Any:
            given = _with_tensors(arguments, takes_tensor)
            try:
                result = original.call_boxed(keys, *given, **keyword)
            except Exception as error:
                if not self.active:
                    raise
                raise type(error)("words that no operator says") from None
            if self.active:
                for tensor in tree.tensors(given[:1] if result is None else result):
                    _spoil(tensor)
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


def _spoil(tensor: torch.Tensor) -> None:
    if tensor.dtype is torch.bool:
        tensor.logical_not_()
    else:
        tensor.sub_(-_EXCESS)  # sub_ and not add_: that may come back here


def _tensor_arguments(overload: str) -> list[bool]:
    """For each positional argument, whether the operator takes a tensor for it."""
    name, _, rest = overload.partition(".")
    schema = getattr(getattr(torch.ops.aten, name), rest or "default")._schema
    return [str(argument.type) == "Tensor" for argument in schema.arguments]


def _with_tensors(arguments: Sequence[Any], takes_tensor: Sequence[bool]) -> list[Any]:
    """Kernels in Python get a number for a tensor that wraps one; the original wants a tensor.

    It gets the dtype of the result, so that it cannot promote where the number would not.
    """
    pairs = list(zip(arguments, takes_tensor, strict=False))
    numbers = (bool, int, float, complex)
    if not any(takes and isinstance(argument, numbers) for argument, takes in pairs):
        return list(arguments)
    dtype = torch.result_type(*[argument for argument, takes in pairs if takes][:2])
    return [
        torch.scalar_tensor(argument, dtype=dtype)
        if takes and isinstance(argument, numbers)
        else argument
        for argument, takes in pairs
    ]
