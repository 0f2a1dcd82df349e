"""Owns: the soak: two threads train on two devices for long, and nothing grows.

TORCH_FL_SOAK_SECONDS says how long the slow test takes: 300 by default, 3600 for the hour that is
run by hand.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from children import run_child

SECONDS = float(os.environ.get("TORCH_FL_SOAK_SECONDS", "3600"))
HERE = Path(__file__).parent


def _soaked(seconds: float) -> dict[str, Any]:
    child = run_child(
        f"""
        import json, sys
        sys.path[:0] = {[str(HERE), str(HERE.parent)]!r}
        import soak
        print(json.dumps(soak.run({seconds})))
        """,
        timeout=seconds + 180,
        FLAGOS_HOST_DEVICES="2",
        OMP_NUM_THREADS="1",
    )
    assert child.returncode == 0, child.stderr[-5000:]
    figures: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return figures


def _assert_nothing_grew(figures: dict[str, Any]) -> None:
    """The rounds themselves were compared, to the last bit, while they ran."""
    assert figures["left"] == [0, 0], figures
    assert min(figures["rounds"]) >= 2, figures
    assert all(len(levels) <= 1 for levels in figures["levels of device memory"]), figures


def test_a_few_seconds() -> None:
    _assert_nothing_grew(_soaked(4))


@pytest.mark.slow
def test_long() -> None:
    figures = _soaked(SECONDS)
    print(figures)
    _assert_nothing_grew(figures)
    assert all(len(levels) == 1 for levels in figures["levels of device memory"]), figures
    assert figures["out of memory"] > 0, figures
    assert figures["host growth MiB"] < 16, figures
