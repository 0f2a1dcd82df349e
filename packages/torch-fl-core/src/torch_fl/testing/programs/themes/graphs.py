"""Owns: programs that record work on the device as a graph and replay it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..inputs import normal, on_device, state_of
from ..registry import Results, Skipped, program

_WARM_UP = 3


def _module(device: str) -> Any:
    module = torch.get_device_module(device)
    if not hasattr(module, "CUDAGraph"):
        raise Skipped("this device has no graphs")
    return module


def _warmed_up(module: Any, step: Any) -> None:
    """Runs a step on a side stream, as has to be done before it is recorded."""
    side = module.Stream()
    side.wait_stream(module.current_stream())
    with module.stream(side):
        for _ in range(_WARM_UP):
            step()
    module.current_stream().wait_stream(side)


@program(accelerator=True)
def forward(device: str) -> Results:
    """A forward pass, replayed with other inputs in the same memory."""
    module = _module(device)
    net = on_device(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)), device)
    x = normal(device, 16, 32)
    with torch.no_grad():
        _warmed_up(module, lambda: net(x))
        graph = module.CUDAGraph()
        with module.graph(graph):
            y = net(x).softmax(-1)
        results: Results = {}
        for turn in range(3):
            x.copy_(normal(device, 16, 32, seed=turn))
            graph.replay()
            results |= {f"replayed {turn}": y.clone(), f"eager {turn}": net(x).softmax(-1)}
    return results


def _training(device: str, optimizer: str, *, dropout: float, replays: int = 6) -> Results:
    module = _module(device)
    net = nn.Sequential(nn.Linear(32, 64), nn.Dropout(dropout), nn.ReLU(), nn.Linear(64, 8))
    net = on_device(net, device)
    if optimizer == "SGD":
        steps: torch.optim.Optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    else:
        fused = optimizer == "fused AdamW"
        how: dict[str, Any] = {"fused": fused, "foreach": not fused, "capturable": True}
        steps = torch.optim.AdamW(net.parameters(), lr=0.01, **how)
    x, target = normal(device, 16, 32), normal(device, 16, 8, seed=2)

    def step() -> Tensor:
        steps.zero_grad(set_to_none=True)
        loss = F.mse_loss(net(x), target)
        loss.backward()
        steps.step()
        return loss

    _warmed_up(module, step)
    graph = module.CUDAGraph()
    with module.graph(graph):
        loss = step()
    losses = []
    for turn in range(replays):
        x.copy_(normal(device, 16, 32, seed=turn))
        graph.replay()
        losses.append(loss.detach().clone())
    results: Results = {"losses": torch.stack(losses), **state_of(net)}
    results["drawn afterwards"] = torch.rand(5, device=device)
    step()
    return results | state_of(net, "eager afterwards: ")


@program(accelerator=True)
def training_by_sgd(device: str) -> Results:
    """A whole training step."""
    return _training(device, "SGD", dropout=0.0)


@program(accelerator=True)
def training_by_adamw(device: str) -> Results:
    """A whole training step with an optimizer that counts its steps on the device."""
    return _training(device, "AdamW", dropout=0.0)


@program(accelerator=True)
def training_by_fused_adamw(device: str) -> Results:
    """The same with its fused kernel."""
    return _training(device, "fused AdamW", dropout=0.0)


@program(accelerator=True)
def training_with_dropout(device: str) -> Results:
    """A recorded step that draws random numbers: others at each replay, as without a graph."""
    return _training(device, "AdamW", dropout=0.4)


@program(accelerator=True)
def random_numbers(device: str) -> Results:
    """Numbers drawn in replays and between them, from the default generator and another."""
    module = _module(device)
    own = torch.Generator(device).manual_seed(5)
    torch.manual_seed(6)
    graph = module.CUDAGraph()
    graph.register_generator_state(own)
    with module.graph(graph):
        drawn = torch.rand(50, device=device)
        other = torch.randn(50, device=device, generator=own)
    results: Results = {}
    for turn in range(3):
        graph.replay()
        results |= {f"default {turn}": drawn.clone(), f"own {turn}": other.clone()}
        results[f"between {turn}"] = torch.rand(5, device=device)
    return results | {"state": own.get_state()}


@program(accelerator=True)
def graphed_callables(device: str) -> Results:
    """Modules whose forward and backward passes are graphs, in a training step that is not."""
    module = _module(device)
    first, second = nn.Linear(32, 64), nn.Sequential(nn.ReLU(), nn.Linear(64, 8))
    model = on_device(nn.ModuleList([first, second]), device)
    sample = normal(device, 16, 32, grad=True)
    hidden = normal(device, 16, 64, grad=True)
    made = module.make_graphed_callables((model[0], model[1]), ((sample,), (hidden,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for turn in range(4):
        optimizer.zero_grad()
        y = made[1](torch.tanh(made[0](normal(device, 16, 32, seed=turn, grad=True))))
        loss = y.square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().clone())
    return {"losses": torch.stack(losses), **state_of(model)}


@program(accelerator=True)
def convolution_and_attention(device: str) -> Results:
    """Libraries' kernels in a graph: convolution, batch norm and attention, and back."""
    module = _module(device)
    net = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
    net = on_device(net, device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = normal(device, 4, 8, 8, 8).contiguous(memory_format=torch.channels_last)

    def step() -> Tensor:
        net.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, cache_enabled=False):
            y = net(x).flatten(2).transpose(1, 2).unflatten(2, (2, 8)).transpose(1, 2)
            out = F.scaled_dot_product_attention(y, y, y, is_causal=True)
        out.float().square().mean().backward()
        return out

    _warmed_up(module, step)
    graph = module.CUDAGraph()
    with module.graph(graph):
        out = step()
    for turn in range(3):
        x.copy_(normal(device, 4, 8, 8, 8, seed=turn))
        graph.replay()
    results: Results = {"output": out.detach().clone(), **state_of(net)}
    for name, parameter in net.named_parameters():
        results[f"grad of {name}"] = "none" if parameter.grad is None else parameter.grad.clone()
    return results


@program(accelerator=True)
def not_capturable(device: str) -> Results:
    """An optimizer that counts its steps on the CPU: recorded, each replay would be the same."""
    module = _module(device)
    net = on_device(nn.Linear(8, 8), device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        net(x).square().mean().backward()
        optimizer.step()

    x = normal(device, 4, 8)
    _warmed_up(module, step)
    results: Results = {"error": "none"}
    try:
        with module.graph(module.CUDAGraph()):
            step()
    except RuntimeError as error:
        results["error"] = str(error)
    return results | {"afterwards": x * 2, "capturing": str(module.is_current_stream_capturing())}
