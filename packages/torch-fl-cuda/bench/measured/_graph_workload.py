"""Owns: a training step, captured once and replayed, and the same steps without a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from _layer_workloads import small_mlp
from _workloads import Workload
from torch import Tensor, nn

WARM = 3
"""Steps before the capture, on a stream of their own, as PyTorch asks for."""


class Training:
    """A small MLP with its optimizer, data and loss; the same from one construction to the next."""

    def __init__(self, device: torch.device, size: dict[str, Any]) -> None:
        torch.manual_seed(0)
        with device:
            self.model = small_mlp(size)
            self.inputs = torch.randn(size["batch"], size["width"])
            self.target = torch.randn(size["batch"], size["width"])
            self.loss = torch.zeros(())
        # Capturable: its step counts are on the device, where a graph can advance them.
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, capturable=True)

    def step(self) -> None:
        """One step; the loss goes to where the one before was."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(self.model(self.inputs), self.target)
        loss.backward()
        self.optimizer.step()
        self.loss.copy_(loss.detach())

    def parameters(self) -> list[nn.Parameter]:
        """What the steps change."""
        return list(self.model.parameters())


def capture(device: torch.device, step: Callable[[], None]) -> Callable[[], None]:
    """Warms the step and records it; returns what replays it. NotImplementedError on a CPU."""
    if device.type == "cpu":
        raise NotImplementedError("a CPU has no graphs")
    module = torch.get_device_module(device)
    graph = module.CUDAGraph()
    stream = module.Stream()
    stream.wait_stream(module.current_stream())
    with module.stream(stream):
        for _ in range(WARM):
            step()
    module.current_stream().wait_stream(stream)
    with module.graph(graph):
        step()
    replay: Callable[[], None] = graph.replay
    return replay


def largest_difference(one: list[nn.Parameter], other: list[nn.Parameter]) -> float:
    """Of all elements of two models; infinity where something is not a number."""

    def difference(a: Tensor, b: Tensor) -> float:
        return float((a - b).abs().nan_to_num(torch.inf, torch.inf, torch.inf).max().item())

    with torch.no_grad():
        return max(difference(a, b) for a, b in zip(one, other, strict=True))


def replay(device: torch.device, size: dict[str, Any]) -> Workload:
    """Replays; at the end as many steps without a graph, and how far both are apart."""
    graphed = Training(device, size)
    replay_once = capture(device, graphed.step)
    replays = 0

    def step() -> None:
        nonlocal replays
        replay_once()
        replays += 1

    def reports() -> dict[str, float]:
        eager = Training(device, size)
        for _ in range(WARM + replays):
            eager.step()
        apart = largest_difference(graphed.parameters(), eager.parameters())
        return {"difference to eager": apart, "replays": float(replays)}

    return Workload(step, lambda: float(graphed.loss.item()), reports=reports)
