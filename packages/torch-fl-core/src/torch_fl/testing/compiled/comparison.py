"""Owns: whether two runs of a program came to the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

__all__ = ["differences"]

# Relative and absolute, for what one compiler fuses and another does not.
_TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 2e-5,
    torch.complex64: 2e-5,
    torch.complex128: 1e-9,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
}


def differences(got: Any, expected: Any, tolerance: float) -> tuple[bool, list[str]]:
    """Whether two nests of tensors and plain values are equal to the last bit, and where they are
    further apart than `tolerance` (relative and absolute; at least what the dtype allows)."""
    found, left = pytree.tree_flatten(got)
    wanted, right = pytree.tree_flatten(expected)
    if left != right:
        return False, [f"the results are a {left}, not a {right}"]
    equal = True
    notes: list[str] = []
    for index, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        same, note = _difference(mine, theirs, tolerance)
        equal = equal and same
        notes += [f"value {index}: {text}" for text in note]
    return equal and not notes, notes


def _difference(got: Any, expected: Any, tolerance: float) -> tuple[bool, list[str]]:
    if not (isinstance(got, torch.Tensor) and isinstance(expected, torch.Tensor)):
        if isinstance(got, float) and isinstance(expected, float):
            return got == expected, [] if abs(got - expected) <= 1e-5 else [
                f"{got}, not {expected}"
            ]
        same = type(got) is type(expected) and bool(got == expected)
        return same, [] if same else [f"{got!r}, not {expected!r}"]
    notes = [*_descriptions(got, expected)]
    if notes:
        return False, notes
    mine, theirs = _plain(got), _plain(expected)
    if mine.dtype == torch.bool or not (mine.is_floating_point() or mine.is_complex()):
        same = torch.equal(mine, theirs)
        return same, [] if same else ["other integers"]
    if torch.equal(mine.nan_to_num(7), theirs.nan_to_num(7)):
        return True, []
    allowed = max(tolerance, _TOLERANCE[mine.dtype])
    if torch.allclose(mine, theirs, rtol=allowed, atol=allowed, equal_nan=True):
        return False, []
    worst = (mine - theirs).abs().nan_to_num(float("inf")).max().item()
    return False, [f"differs by up to {worst:.3g} (of {theirs.abs().max().item():.3g})"]


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().cpu()
    return tensor.to_dense() if tensor.layout != torch.strided else tensor


def _descriptions(got: torch.Tensor, expected: torch.Tensor) -> Iterator[str]:
    for name in ("shape", "dtype", "device", "layout", "requires_grad", "is_leaf"):
        mine, theirs = getattr(got, name), getattr(expected, name)
        if mine != theirs:
            yield f"{name} {mine}, not {theirs}"
