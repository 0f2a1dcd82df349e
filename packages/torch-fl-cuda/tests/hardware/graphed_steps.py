"""Owns: training steps with and without a graph, and what a graph refuses: the same on CUDA used
natively and on flagos. Run by test_graphs.py in a child for each.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WARM_UP = 3
WIDTH = 64
BATCHES = 16


def fingerprint(tensors: Any) -> str:
    """Of all bits of `tensors`."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


class Training:
    """A small network in bfloat16, its AdamW and its data; the same whenever it is made."""

    def __init__(self, device: str, dropout: float = 0.0) -> None:
        self.device = device
        torch.manual_seed(0)
        layers = [nn.Linear(WIDTH, 128), nn.GELU(), nn.Dropout(dropout), nn.Linear(128, WIDTH)]
        self.net = nn.Sequential(*layers, nn.LayerNorm(WIDTH)).to(device)
        self.data = torch.randn(BATCHES, 32, WIDTH).to(device)
        self.target = torch.randn(32, WIDTH).to(device)
        self.x = self.data[0].clone()
        self.loss = torch.zeros((), device=device)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3, capturable=True)

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, torch.bfloat16, cache_enabled=False):
            loss = F.mse_loss(self.net(self.x), self.target)
        loss.backward()
        self.optimizer.step()
        self.loss.copy_(loss.detach())


def trained(device: str, steps: int, *, graphed: bool, dropout: float = 0.0) -> dict[str, Any]:
    """What is left of so many steps: the weights' fingerprint, and the first and last losses."""
    gpu = torch.get_device_module(device)
    training = Training(device, dropout)
    side = gpu.Stream()
    side.wait_stream(gpu.current_stream())
    with gpu.stream(side):
        for _ in range(WARM_UP):
            training.step()
    gpu.current_stream().wait_stream(side)
    do = training.step
    if graphed:
        graph = gpu.CUDAGraph()
        with gpu.graph(graph):
            training.step()
        do = graph.replay
    losses = []
    for index in range(steps):
        training.x.copy_(training.data[index % BATCHES])
        do()
        if index in (0, steps - 1):
            losses.append(training.loss.item())
    return {"weights": fingerprint(training.net.parameters()), "losses": losses}


def both_ways(device: str, steps: int) -> dict[str, Any]:
    """`trained` with a graph and without one."""
    return {
        "replayed": trained(device, steps, graphed=True),
        "eager": trained(device, steps, graphed=False),
    }


def with_dropout(device: str, steps: int) -> dict[str, Any]:
    """`trained` with a graph that draws random numbers, and with one that does not."""
    return {
        "with": trained(device, steps, graphed=True, dropout=0.4),
        "without": trained(device, steps, graphed=True),
    }


def graphed_module(device: str, steps: int = 20) -> dict[str, Any]:
    """Training by a module whose passes are graphs, and by the same one without."""

    def train(*, graphed: bool) -> str:
        training = Training(device)
        if graphed:
            module = torch.get_device_module(device)
            with torch.autocast(device, torch.bfloat16, cache_enabled=False):
                training.net = module.make_graphed_callables(training.net, (training.x,))
        for index in range(steps):
            training.x = training.data[index % BATCHES]
            training.step()
        return fingerprint(training.net.parameters())

    return {"replayed": train(graphed=True), "eager": train(graphed=False)}


def drawn(device: str, *, own_generator: bool = False) -> list[str]:
    """Fingerprints of random numbers from three replays, and of some drawn after each."""
    gpu = torch.get_device_module(device)
    graph = gpu.CUDAGraph()
    generator = None
    if own_generator:
        generator = torch.Generator(device).manual_seed(5)
        graph.register_generator_state(generator)
    ones = torch.ones(1000, device=device)
    F.dropout(torch.rand_like(ones), 0.5)  # kernels are loaded
    torch.manual_seed(6)
    with gpu.graph(graph):
        numbers = torch.rand(1000, device=device, generator=generator)
        dropped = F.dropout(ones, 0.5)
    result = []
    for _ in range(3):
        graph.replay()
        result.append(fingerprint([numbers, dropped]))
        result.append(fingerprint([torch.rand(10, device=device)]))
    return result


def refusals(device: str) -> dict[str, Any]:
    """Errors of what no graph can record, and what works afterwards."""
    gpu = torch.get_device_module(device)
    x = torch.ones(4, device=device)
    calls: dict[str, Callable[[], object]] = {
        "item": lambda: x[0].item(),
        "cpu": lambda: (x + 1).cpu(),
        "nonzero": lambda: x.nonzero(),
        "synchronize": gpu.synchronize,
    }
    facts: dict[str, Any] = {}
    for name, call in calls.items():
        call()  # kernels are loaded
        try:
            with gpu.graph(gpu.CUDAGraph()):
                call()
            facts[name] = "was recorded"
        except RuntimeError as error:
            facts[name] = list(_chain(error))
        facts[f"after {name}"] = [gpu.is_current_stream_capturing(), (x * 2).tolist()]
    return facts


def _chain(error: BaseException | None) -> Any:
    while error is not None:
        yield f"{type(error).__name__}: {str(error).splitlines()[0]}"
        error = error.__context__


def modes(device: str) -> dict[str, list[str]]:
    """What fails where another thread takes memory from the driver during a capture."""
    return {mode: _captured_in(device, mode) for mode in ("thread_local", "relaxed", "global")}


def _captured_in(device: str, mode: str) -> list[str]:
    gpu = torch.get_device_module(device)
    x = torch.ones(4, device=device)
    x + 1
    failed: list[str] = []
    side = gpu.Stream()

    def take() -> None:
        try:
            with gpu.stream(side):  # this stream has no memory yet, so there is none to reuse
                torch.empty(16 << 20, device=device)
        except RuntimeError:
            failed.append("the other thread")

    def capture() -> Tensor:
        with gpu.graph(gpu.CUDAGraph(), capture_error_mode=mode):
            result = x + 1
            thread = threading.Thread(target=take)
            thread.start()
            thread.join()
        return result

    try:
        capture()
    except RuntimeError:
        failed.append("the capture")
    return failed
