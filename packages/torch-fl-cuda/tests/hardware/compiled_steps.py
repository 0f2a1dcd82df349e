"""Owns: functions compiled with mode="reduce-overhead", which PyTorch records as CUDA graphs: the
same on CUDA used natively and on flagos: results and what is recorded. Run by
test_compiled_graphs.py in a child for each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.utils.checkpoint import checkpoint

WIDTH = 64
BATCHES = 8


class Replays:
    """How often graphs have been replayed since it was made."""

    def __init__(self) -> None:
        self.count = 0
        original = torch.cuda.CUDAGraph.replay

        def replay(graph: Any) -> Any:
            self.count += 1
            # PyTorch sets the offset of a graph's random numbers to 0 on the stream that records,
            # and to what it is on the stream that replays: nothing orders the two.
            torch.cuda.synchronize()
            return original(graph)

        torch.cuda.CUDAGraph.replay = replay

    def of(self, call: Callable[[], Any]) -> tuple[Any, int]:
        """What a call gives, and the replays in it."""
        before = self.count
        return call(), self.count - before


def compiled(function: Callable[..., Any]) -> Any:
    return torch.compile(function, mode="reduce-overhead")


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(WIDTH, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, WIDTH)]
    return nn.Sequential(*layers)


def batches(device: str) -> Tensor:
    return torch.randn(BATCHES, 32, WIDTH, generator=torch.Generator().manual_seed(1)).to(device)


def loss_of(net: nn.Module, x: Tensor) -> Tensor:
    return F.mse_loss(net(x), x.roll(1, 0))


def skips() -> int:
    return int(counters["inductor"]["cudagraph_skips"])


# -- results


def forward(device: str) -> dict[str, Any]:
    """How far compiled results are from eager ones, and the replays of each call."""
    replays, net, data = Replays(), network().to(device), batches(device)
    fast = compiled(net)
    apart, counts, addresses = 0.0, [], []
    with torch.no_grad():
        for x in data:
            out, count = replays.of(lambda x=x: fast(x))
            counts.append(count)
            addresses.append(out.data_ptr())
            apart = max(apart, (out - net(x)).abs().max().item())
    moved = len(set(addresses[4:])) > 1
    return {"apart": apart, "replays": counts, "skips": skips(), "moved": moved}


def training(device: str) -> dict[str, Any]:
    """Losses and weights of training steps, compiled and eager."""

    def train(loss: Callable[..., Tensor]) -> dict[str, Any]:
        net = network().to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        losses, counts = [], []
        for x in batches(device).repeat(3, 1, 1):

            def step(x: Tensor = x) -> float:
                optimizer.zero_grad(set_to_none=True)
                now = loss(net, x)
                now.backward()
                optimizer.step()
                return float(now.item())

            value, count = replays.of(step)
            losses.append(value)
            counts.append(count)
        weights = torch.cat([parameter.detach().flatten() for parameter in net.parameters()])
        return {"losses": losses, "replays": counts, "weights": weights.cpu()}

    replays = Replays()
    eager, fast = train(loss_of), train(compiled(loss_of))
    apart = (eager.pop("weights") - fast.pop("weights")).abs().max().item()
    return {"eager": eager, "compiled": fast, "apart": apart, "skips": skips()}


def drawn(device: str) -> list[str]:
    """Fingerprints of what each call draws."""
    fast = compiled(lambda x: F.dropout(x, 0.5) + torch.rand_like(x))
    x = torch.ones(1000, device=device)
    torch.manual_seed(5)
    made = [fast(x).cpu().numpy().tobytes() for _ in range(6)]
    return [hashlib.sha256(one).hexdigest() for one in made]


# -- what is not recorded


def reasons(device: str) -> dict[str, list[int]]:
    """For each function how often PyTorch skipped recording, and the replays of a later call."""
    replays = Replays()
    buffer, host = torch.zeros(8, device=device), torch.ones(8)

    def writes(x: Tensor) -> Tensor:
        x.add_(1)
        return x * 2

    def writes_static(x: Tensor) -> Tensor:
        buffer.add_(x)
        return buffer * 2

    functions: dict[str, Callable[[Tensor], Any]] = {
        "nothing": lambda x: x * 2 + 1,
        "writes to an argument": writes,
        "writes to a buffer": writes_static,
        "a tensor of the host": lambda x: x * host.sum().to(x.device),
        "a result on the host": lambda x: (x * 2).cpu() + 1,
        "an index that waits": lambda x: x[x > 0] * 2,
    }
    found = {}
    for name, function in functions.items():
        torch._dynamo.reset()
        counters.clear()
        fast = compiled(function)
        with torch.no_grad():
            for _ in range(4):
                _, count = replays.of(lambda fast=fast: fast(torch.ones(8, device=device)))
        found[name] = [skips(), count]
    return found


def _dropout(x: Tensor) -> Tensor:
    return F.dropout(x.sin(), 0.5) * x


def _poisson(x: Tensor) -> Tensor:
    return torch.poisson(x.exp()) * x


def checkpointed(device: str) -> dict[str, Any]:
    """Training through checkpoints whose random numbers the backward pass draws again: such as the
    compiler draws itself, and such as are an operator's."""
    return {block.__name__: _checkpointed(device, block) for block in (_dropout, _poisson)}


def _checkpointed(device: str, block: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    torch._dynamo.reset()
    counters.clear()
    replays = Replays()
    fast = compiled(lambda x: checkpoint(block, x, use_reentrant=False))
    x = torch.ones(64, device=device).requires_grad_()
    masks, counts = [], []
    for _ in range(5):
        x.grad = None
        out, count = replays.of(lambda: fast(x))
        kept = out.detach().clone() != 0
        _, backward = replays.of(lambda out=out: out.sum().backward())
        masks.append(torch.equal(kept, x.grad != 0))
        counts.append([count, backward])
    return {"the same numbers": masks, "replays": counts, "skips": skips()}
