"""Owns: the constructors and functions that take a device and that no function mode sees.

Reason: `torch_fl.migrate()` renames devices with PyTorch's own mechanism, a TorchFunctionMode.
These names never ask the mode: C++ constructors of objects that are no tensors, the state of
autocast, and classes written in Python that compare the string themselves. Each gets a wrapper that
renames its device where `inside()` holds, and does what PyTorch does elsewhere. Dated 2026-11,
torch 2.11 to 2.13. Held by tests/migrate/test_migrate_contracts.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.amp import autocast_mode, grad_scaler

from torch_fl._compat.replacing import Place

__all__ = ["AUTOCAST_STATE", "CONSTRUCTORS", "places"]

CONSTRUCTORS = ("Generator", "Stream", "Event")
AUTOCAST_STATE = (
    "get_autocast_dtype",
    "is_autocast_enabled",
    "set_autocast_dtype",
    "set_autocast_enabled",
)
# Older than the devices' names: without one, or with "gpu", they mean CUDA's.
WITHOUT_DEVICE = {
    "get_autocast_gpu_dtype": "get_autocast_dtype",
    "set_autocast_gpu_dtype": "set_autocast_dtype",
}
_DECORATORS = ("custom_fwd", "custom_bwd")

Rename = Callable[[str, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]
"""Gets a call's name, positional and keyword arguments, and returns the latter two, renamed."""


def places(inside: Callable[[], bool], rename: Rename) -> list[Place]:
    """What stands in for each of these names."""
    found: list[Place] = [
        (torch, name, _constructor(getattr(torch, name), inside, rename)) for name in CONSTRUCTORS
    ]
    found += [
        (torch, name, _state(name, getattr(torch, name), inside, rename)) for name in AUTOCAST_STATE
    ]
    found += [
        (
            torch,
            name,
            _of_cuda(name, getattr(torch, name), getattr(torch, with_device), inside, rename),
        )
        for name, with_device in WITHOUT_DEVICE.items()
    ]
    for name in _DECORATORS:
        stand_in = _function(f"torch.amp.{name}", getattr(torch.amp, name), inside, rename)
        found += [(torch.amp, name, stand_in), (autocast_mode, name, stand_in)]
    autocast, scaler = autocast_mode.autocast, grad_scaler.GradScaler
    found.append((autocast, "__init__", _init("torch.autocast", autocast, "", inside, rename)))
    # Its device has a default, the name that is to be replaced.
    made = _init("torch.amp.GradScaler", scaler, "cuda", inside, rename)
    found.append((scaler, "__init__", made))
    return found


def _function(
    name: str, original: Callable[..., Any], inside: Callable[[], bool], rename: Rename
) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if inside():
            args, kwargs = rename(name, args, kwargs)
        return original(*args, **kwargs)

    return call


def _state(
    name: str, original: Callable[..., Any], inside: Callable[[], bool], rename: Rename
) -> Any:
    """One of the functions about autocast's state. Without a device it means CUDA's."""
    renaming = _function(f"torch.{name}", original, inside, rename)
    without = {"is_autocast_enabled": 0, "set_autocast_enabled": 1}.get(name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if inside() and len(args) + len(kwargs) == without:
            args = ("cuda", *args, *kwargs.values())
            kwargs = {}
        return renaming(*args, **kwargs)

    return call


def _of_cuda(
    name: str,
    original: Callable[..., Any],
    with_device: Callable[..., Any],
    inside: Callable[[], bool],
    rename: Rename,
) -> Any:
    renaming = _function(f"torch.{name}", with_device, inside, rename)

    @functools.wraps(original)
    def call(*args: Any) -> Any:
        return renaming("cuda", *args) if inside() else original(*args)

    return call


def _init(
    name: str, owner: type, default: str, inside: Callable[[], bool], rename: Rename
) -> Callable[..., None]:
    """An `__init__` whose first argument is a device. `default` is its value if none is given."""
    original = vars(owner)["__init__"]

    @functools.wraps(original)
    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        if inside():
            if default and not args and "device" not in kwargs:
                args = (default,)
            args, kwargs = rename(name, args, kwargs)
        original(self, *args, **kwargs)

    return initialise


def _constructor(original: type, inside: Callable[[], bool], rename: Rename) -> type:
    """A class that makes objects of `original`, and is it for `isinstance` and `issubclass`.

    A subclass of it, so that a class made inside a migration, and `Event.__new__(cls, ...)`, work.
    """

    class Meta(type(original)):  # type: ignore[misc]
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            if inside():
                args, kwargs = rename(f"torch.{original.__name__}", args, kwargs)
            if cls is stand_in:
                return original(*args, **kwargs)
            return super().__call__(*args, **kwargs)

        def __instancecheck__(cls, instance: object) -> bool:
            kind = original if cls is stand_in else cls
            return type.__instancecheck__(kind, instance)

        def __subclasscheck__(cls, subclass: type) -> bool:
            kind = original if cls is stand_in else cls
            return type.__subclasscheck__(kind, subclass)

        def __eq__(cls, other: object) -> bool:
            return cls is other or (cls is stand_in and other is original)

        def __hash__(cls) -> int:
            return hash(original) if cls is stand_in else type.__hash__(cls)

    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        # C++ takes objects of the very class, not of a subclass.
        kind = original if cls is stand_in else cls
        return original.__new__(kind, *args, **kwargs)

    body = {"__doc__": original.__doc__, "__module__": "torch", "__new__": new}
    stand_in: type = Meta(original.__name__, (original,), body)
    return stand_in
