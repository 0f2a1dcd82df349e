"""Owns: refusing 64-bit kernels for hardware that has no 64-bit arithmetic.

A plugin for such hardware has `guards=("torch_fl.compile.wide_kernels:refuse",)` in its Triton
target. Two forms are told apart, because what helps is different: an operand that is 64 bits wide
was the program's choice; an index that was promoted means that a tensor is too large.
"""

from __future__ import annotations

import re

from torch_fl.plugins.policies import Kernel

__all__ = ["refuse"]

_WIDE = re.compile(r"\*(i64|u64)$|\*?fp64$")
_PROMOTED = re.compile(r"(program_id\(|offset|index|numel|\bpid)[^#\n]*\btl\.int64\b")
_CASTS = re.compile(r"\btl\.(int64|uint64|float64)\b")
_NARROWER = {"i64": "torch.int32", "u64": "torch.int32", "fp64": "torch.float32"}


def refuse(kernel: Kernel) -> str | None:
    """Why this kernel needs 64 bits and what to change; None where it does not."""
    wide = {name: kind for name, kind in kernel.signature.items() if _WIDE.match(kind)}
    if wide:
        return _operands(wide)
    lines = kernel.source.splitlines()
    promoted = [f"{name}: i64" for name, kind in kernel.signature.items() if kind in ("i64", "u64")]
    promoted += [line.strip() for line in lines if _PROMOTED.search(line)]
    if promoted:
        return (
            f"indices are 64 bits wide ({promoted[0]!r}): a tensor in it has 2**31 elements or "
            "more, or a size that may become so large. Split the tensor, or bound a dynamic size "
            "with torch._check(size < 2**31)."
        )
    for line in lines:
        if _CASTS.search(line):
            return (
                f"it computes in 64 bits ({line.strip()!r}). Ask for a 32-bit dtype where the "
                "program makes the value, as in `.to(torch.int32)` or `dtype=torch.float32`."
            )
    return None


def _operands(wide: dict[str, str]) -> str:
    listed = ", ".join(f"{name} ({kind})" for name, kind in wide.items())
    narrower = sorted({_NARROWER[kind.lstrip("*")] for kind in wide.values()})
    return (
        f"operands are 64 bits wide: {listed}. Make those tensors {' or '.join(narrower)} before "
        "the compiled function, or keep the operators that need 64 bits outside it."
    )
