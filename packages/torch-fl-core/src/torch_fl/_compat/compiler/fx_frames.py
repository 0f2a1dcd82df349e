"""Owns: explaining frames of code that torch.fx made, for memory snapshots.

PyTorch keeps what each line of generated code was made from, and one function of its own, private,
that writes it into the frames of a snapshot. Writing another would mean to read those private
records. Held by tests/device_module/test_memory_history.py.
"""

from __future__ import annotations

from typing import Any


def explain(snapshot: dict[str, Any]) -> dict[str, Any]:
    """`snapshot` with fields "fx_..." in the frames of generated code.

    Raises NotImplementedError where this PyTorch has no such function.
    """
    from torch import _utils

    augment = getattr(_utils, "_augment_memory_snapshot_stack_traces", None)
    if augment is None:
        raise NotImplementedError(
            "This PyTorch cannot explain frames of generated code (augment_with_fx_traces): leave "
            "the argument out."
        )
    explained: dict[str, Any] = augment(snapshot)
    return explained
