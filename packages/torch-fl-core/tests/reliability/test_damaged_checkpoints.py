"""Owns: tests that a damaged checkpoint is a Python error, or loads as it does on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from children import output_of_child

HERE = Path(__file__).parent
KINDS = {"zip": (True, False), "mapped zip": (True, True), "legacy": (False, False)}


def _outcomes(kinds: list[str], stride: int, *, seed: int = 0, timeout: float = 170) -> list[Any]:
    """How often there was which error, or "loaded", for each of the kinds."""
    output = output_of_child(
        f"""
        import json, sys
        sys.path[:0] = {[str(HERE), str(HERE.parent)]!r}
        import torch, torch_fl
        from damaged_checkpoints import checkpoint, compare
        torch.set_num_threads(1)
        for zipped, mapped in {[KINDS[kind] for kind in kinds]}:
            whole = checkpoint(zipped=zipped)
            print(json.dumps(compare(whole, {stride}, mapped=mapped, seed={seed})))
        """,
        timeout=timeout,
    )
    return [json.loads(line) for line in output.splitlines()]


def _assert_seen(found: dict[str, int], at_least: int) -> None:
    assert sum(found.values()) >= at_least
    assert found["loaded"] > 0
    assert found["RuntimeError"] > 0
    assert found["UnpicklingError"] > 0


def test_some_damages() -> None:
    for found in _outcomes(list(KINDS), 307):
        _assert_seen(found, 50)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_damages_nearly_everywhere(kind: str) -> None:
    (found,) = _outcomes([kind], 5, seed=1, timeout=3000)
    _assert_seen(found, 3000)
