"""Owns: tests of PyTorch's profilers on flagos."""

from __future__ import annotations

import math

import pytest
import torch
from children import run_child
from torch.profiler import ProfilerActivity, profile

import torch_fl  # noqa: F401  (makes the device)

D = "flagos"


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_older_profiler_times_the_device() -> None:
    x = torch.randn(200, 200, device=D)
    with torch.autograd.profiler.profile(use_device=D) as measured:
        (x @ x).sum()
    rows = {row.key: row for row in measured.key_averages()}
    for name in ("aten::mm", "aten::sum"):
        time = rows[name].device_time_total
        assert 0 < time < 60e6, name
        assert not math.isnan(time)
    assert rows["aten::mm"].count == 1
    assert "FLAGOS total" in measured.key_averages().table()


def test_it_says_nothing_on_the_side() -> None:
    child = run_child(
        """
        import torch, torch_fl
        x = torch.randn(20, 20, device="flagos")
        with torch.autograd.profiler.profile(use_device="flagos") as measured:
            (x @ x).sum()
        """
    )
    assert child.returncode == 0, child.stderr
    assert "Exception" not in child.stderr
    assert "ASSERT" not in child.stderr


@pytest.mark.parametrize("activities", [None, [ProfilerActivity.CPU]])
def test_operators_are_seen(activities: list[ProfilerActivity] | None) -> None:
    x = torch.randn(20, 20, device=D)
    with profile(activities=activities) as seen:
        (x @ x).relu_()
    assert {"aten::mm", "aten::relu_"} <= {event.name for event in seen.events()}
