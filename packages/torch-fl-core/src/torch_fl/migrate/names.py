"""Owns: what counts as the name of a CUDA device, and which flagos device stands in its place."""

from __future__ import annotations

import re
from typing import Any

import torch

FROM = "cuda"
TO = "flagos"

_Device = torch.device  # the type, for comparing fast
_NAME = re.compile(rf"{FROM}(?::\d+)?")


def is_name(value: Any) -> bool:
    """Whether `value` is "cuda", "cuda:1" or such a `torch.device`."""
    kind = type(value)
    if kind is str:
        return value == FROM or (value[:4] == FROM and _NAME.fullmatch(value) is not None)
    return kind is _Device and value.type == FROM


def renamed(value: Any) -> Any:
    """The flagos device, as a string or a `torch.device` as before; all else as it is."""
    if not is_name(value):
        return value
    if isinstance(value, str):
        return TO + value[len(FROM) :]
    return torch.device(TO) if value.index is None else torch.device(TO, value.index)


def renamed_arguments(
    arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], str | None]:
    """The arguments of a call with their devices renamed, and how the report writes the first
    of those devices; None in its place where there was none.

    Devices stand by themselves among the arguments of PyTorch's functions, never in a list.
    """
    for value in (*arguments, *keywords.values()):
        kind = type(value)
        if (kind is str or kind is _Device) and is_name(value):
            return _renamed(arguments, keywords)
    return arguments, keywords, None  # nearly every call


def _renamed(
    arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], str]:
    shown = [repr(str(value)) for value in arguments if is_name(value)]
    shown += [f"{name}={str(value)!r}" for name, value in keywords.items() if is_name(value)]
    changed = {name: renamed(value) for name, value in keywords.items()}
    return tuple(map(renamed, arguments)), changed, shown[0]
