"""Owns: tests of a training step in which an allocation fails: each of them in turn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from children import output_of_child
from out_of_memory import sweep_steps
from small_training import KINDS, Training

import torch_fl  # noqa: F401  (makes the device)

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The tensors are tiny, and kernels' threads spin when the machine is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("first", [True, False], ids=["first step", "third step"])
@pytest.mark.parametrize(("kind", "autocast"), [("foreach", True), ("fused", False)])
def test_some_allocations_fail(kind: str, autocast: bool, first: bool) -> None:
    training = Training(kind, autocast)
    assert sweep_steps(training, first=first, stride=29, offset=7) > 10


@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False], ids=["first step", "third step"])
@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_allocation_fails(kind: str, autocast: bool, first: bool) -> None:
    assert sweep_steps(Training(kind, autocast), first=first) > 300


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_allocation_fails_on_protected_memory(kind: str) -> None:
    output = output_of_child(
        f"""
        import sys
        sys.path[:0] = {[str(HERE), str(HERE.parent)]!r}
        import torch, torch_fl
        from out_of_memory import sweep_steps
        from small_training import Training
        torch.set_num_threads(1)
        for first in (True, False):
            print(sweep_steps(Training({kind!r}, True), first=first))
        """,
        FLAGOS_HOST_GUARD="1",
        timeout=3000,
    )
    assert all(int(line) > 300 for line in output.split())
