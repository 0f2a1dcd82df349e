"""Owns: putting a function mode on the calling thread's stack, and taking that very one off.

Reason: `TorchFunctionMode.__exit__` takes off whatever is on top, so a mode that outlives the block
it was made in, or that ends before another one does, takes a stranger's with it. PyTorch offers no
other way in public. Dated 2026-11, torch 2.11 to 2.13. Held by
tests/migrate/test_migrate_contracts.py::test_stack_of_function_modes.
"""

from __future__ import annotations

from torch import overrides
from torch.overrides import TorchFunctionMode

__all__ = ["push", "remove", "stack"]


def stack() -> list[TorchFunctionMode]:
    """The calling thread's modes, the one that is asked first last."""
    return list(overrides._get_current_function_mode_stack())


def push(mode: TorchFunctionMode) -> None:
    overrides._push_mode(mode)


def remove(mode: TorchFunctionMode) -> None:
    """Takes `mode` off, wherever it is; does nothing when it is not there."""
    if mode not in stack():
        return
    above: list[TorchFunctionMode] = []
    while (top := overrides._pop_mode()) is not mode:
        above.append(top)
    for other in reversed(above):
        overrides._push_mode(other)
