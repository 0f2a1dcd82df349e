"""Owns: what a workload is, and where each row's is built."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

BUILT_IN = {
    "qwen3-train": "_qwen3_workloads:train",
    "qwen3-decode": "_qwen3_workloads:decode",
    "resnet50-train": "_layer_workloads:resnet50",
    "lstm-train": "_layer_workloads:lstm",
    "mlp-train": "_layer_workloads:mlp",
    "graph-replay": "_graph_workload:replay",
}


@dataclass
class Workload:
    """What one side of a row does.

    Args:
        step: one step; gives the work to the device and waits for nothing that native would not
            wait for.
        result: the number by which both sides are seen to compute the same; it may wait.
        units: how many of the row's units one step is, such as tokens.
        note: which of several ways this is.
        reports: figures that the process computes at its end, by name; may run for seconds.
        model: what computes, and
        output: what the last step has made; of rows that have both sides in one process, which
            share the model's parameters and make the same bit for bit.
    """

    step: Callable[[], object]
    result: Callable[[], float]
    units: int = 1
    note: str = ""
    reports: Callable[[], dict[str, Any]] | None = None
    model: torch.nn.Module | None = None
    output: Callable[[], torch.Tensor] | None = None


def prepare(name: str) -> None:
    """Imports what the named row's workload needs; a module's `prepare` imports what it wants."""
    module = importlib.import_module(BUILT_IN[name].partition(":")[0])
    getattr(module, "prepare", lambda: None)()


def build(name: str, device: torch.device, size: dict[str, Any]) -> Workload:
    """The named row's workload; its random numbers are drawn on the device, from seed 0."""
    module, _, function = BUILT_IN[name].partition(":")
    torch.manual_seed(0)
    found: Workload = getattr(importlib.import_module(module), function)(device, size)
    return found


def trained(
    step: Callable[[], torch.Tensor],
    note: str = "",
    reports: Callable[[], dict[str, float]] | None = None,
) -> Workload:
    """A workload whose steps return their loss, which is its result."""
    last: list[torch.Tensor] = []

    def run() -> None:
        last[:] = [step().detach()]

    return Workload(run, lambda: float(last[0].item()), note=note, reports=reports)
