"""Owns: renaming devices in calls of PyTorch's functions, by PyTorch's own mechanism for that.

A TorchFunctionMode sees every function of PyTorch that takes or makes a tensor, `torch.device`
itself, and the properties of tensors. What it does not see is in `_compat/cuda_names.py`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.overrides import resolve_name

from torch_fl.migrate import scopes
from torch_fl.migrate.names import FROM, TO, renamed, renamed_arguments
from torch_fl.migrate.scopes import Scope, ScopedMode

__all__ = ["DeviceNames"]

_ASKS_FOR_CUDA = re.compile(
    r"is_cuda|CUDA\s+(tensor|device)|(must|should)\s+be\s+.{0,20}\bcuda\b", re.IGNORECASE
)
_ADVICE = (
    "a kernel, probably of an extension written for CUDA, refused a flagos tensor. Such a kernel "
    "has to be built for the accelerator at hand, or its operator given another route."
)


class DeviceNames(ScopedMode):
    """Function mode that gives calls which name a CUDA device the flagos device."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        scope = scopes.current() or self.scope
        if not scope.open or func is torch.einsum:  # "cuda" may be an equation
            return func(*args, **kwargs)
        if special := _SPECIAL.get(func):
            return special(scope, func, args, kwargs)
        args, kwargs, shown = renamed_arguments(args, kwargs)
        if shown is not None:
            scope.add(f"{_name_of(func)}({shown})")
        try:
            return func(*args, **kwargs)
        except (RuntimeError, ValueError) as error:
            if _ASKS_FOR_CUDA.search(str(error)):
                scope.add_limit(_name_of(func), _ADVICE)
            raise


@functools.cache  # looking it up costs more than most calls
def _name_of(func: Callable[..., Any]) -> str:
    if func is torch.device:
        return "torch.device"
    found = resolve_name(func) or getattr(func, "__name__", str(func))
    return str(found).replace("torch._C.TensorBase.", "torch.Tensor.")


def _cuda(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`Tensor.cuda(device=None, non_blocking=False, memory_format=torch.preserve_format)`."""
    scope.add("torch.Tensor.cuda()")
    tensor, *rest = args
    names = ("device", "non_blocking", "memory_format")
    given = {**dict(zip(names, rest, strict=False)), **kwargs}
    device = renamed(given.pop("device", None))
    if device is None:
        place = torch.device(TO)
    elif isinstance(device, int):
        place = torch.device(TO, device)
    else:
        place = torch.device(device)
    if place.type != TO:
        raise RuntimeError(f"Invalid device, must be {FROM} device")
    return tensor.to(place, **given)


def _is_cuda(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    scope.add("torch.Tensor.is_cuda")
    return bool(args[0].device.type in (FROM, TO))


def _type(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`Tensor.type("torch.cuda.FloatTensor")`."""
    old, new = f"torch.{FROM}.", f"torch.{TO}."
    values = list(args)
    for place, value in enumerate(values):
        if isinstance(value, str) and value.startswith(old):
            scope.add(f"torch.Tensor.type({value!r})")
            values[place] = new + value.removeprefix(old)
    return func(*values, **kwargs)


_SPECIAL: dict[Any, Callable[[Scope, Any, tuple[Any, ...], dict[str, Any]], Any]] = {
    torch.Tensor.cuda: _cuda,
    torch.Tensor.is_cuda.__get__: _is_cuda,  # type: ignore[attr-defined]  # typed as its value
    torch.Tensor.type: _type,
}
