"""Owns: programs around optimizers: clipping, groups, schedules, averages, going on from a file."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable

import torch
from torch import nn, optim
from torch.optim import swa_utils

from ..inputs import normal, on_device, state_of
from ..registry import Results, program

_SOME: dict[str, Callable[..., optim.Optimizer]] = {
    "Adam": optim.Adam,
    "SGD": lambda p, **how: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, **how),
    "Adagrad": optim.Adagrad,
    "RMSprop": lambda p, **how: optim.RMSprop(p, momentum=0.9, centered=True, **how),
}


def _model(device: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    return on_device(nn.Sequential(nn.Linear(7, 9), nn.Tanh(), nn.Linear(9, 3)), device).to(dtype)


def _steps(device: str, model: nn.Module, optimizer: optim.Optimizer, count: int = 3) -> None:
    dtype = next(model.parameters()).dtype
    for step in range(count):
        optimizer.zero_grad()
        model(normal(device, 5, 7, seed=step, dtype=dtype)).square().mean().backward()
        optimizer.step()


def _states(optimizer: optim.Optimizer) -> Results:
    """What the optimizer remembers of each parameter."""
    states = optimizer.state_dict()["state"]
    return {
        f"state {index}.{name}": value
        for index, state in states.items()
        for name, value in state.items()
        if isinstance(value, torch.Tensor)
    }


@program
def clipping(device: str) -> Results:
    """Gradients clipped by value and by norms of several orders, in each implementation."""
    results: Results = {}
    for order in (1.0, 2.0, 3.5, float("inf")):
        for foreach in (None, False, True):
            model = _model(device)
            model(normal(device, 5, 7)).pow(3).sum().backward()
            how = {"norm_type": order, "foreach": foreach}
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5, **how)  # type: ignore[arg-type]
            prefix = f"{order} {foreach}"
            results[prefix] = norm
            for name, parameter in model.named_parameters():
                assert parameter.grad is not None
                results[f"{prefix} {name}"] = parameter.grad
    model = _model(device)
    model(normal(device, 5, 7)).pow(3).sum().backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.1)
    flat = nn.utils.parameters_to_vector(p.grad for p in model.parameters() if p.grad is not None)
    return results | {"by value": flat}


@program
def groups_and_schedules(device: str) -> Results:
    """Parameter groups with settings of their own, learning rates that change, some as tensors."""
    model = _model(device)
    first, last = model[0], model[2]  # type: ignore[index]
    groups = [{"params": first.parameters(), "lr": 0.1}, {"params": last.parameters()}]
    optimizer = optim.AdamW(groups, lr=0.01, weight_decay=0.1)
    warmup = optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2)
    cosine = optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    schedule = optim.lr_scheduler.SequentialLR(optimizer, [warmup, cosine], [2])
    results: Results = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(5):
            _steps(device, model, optimizer, 1)
            schedule.step()
            results |= state_of(model, f"step {step} ")
    rate = torch.tensor(0.02, device=device)
    for how in ({"foreach": False}, {"fused": True}):
        model = _model(device)
        _steps(device, model, optim.Adam(model.parameters(), lr=rate, **how))  # type: ignore[arg-type]
        results |= state_of(model, f"rate as a tensor, {how}: ")
    return results


@program
def averages(device: str) -> Results:
    """Averages of models: equal weights, exponential ones, with buffers and updated batch norm."""
    results: Results = {}
    for name, how in {
        "equal": {},
        "exponential": {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.8), "use_buffers": True},
        "one by one": {"avg_fn": swa_utils.get_ema_avg_fn(0.8)},
    }.items():
        model: nn.Module = nn.Sequential(nn.Linear(7, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
        model = on_device(model, device)
        averaged = swa_utils.AveragedModel(model, **how)
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            _steps(device, model, optimizer, 1)
            averaged.update_parameters(model)
        swa_utils.update_bn([normal(device, 5, 7, seed=9)], averaged)
        results |= state_of(averaged, f"{name}: ")
    return results


@program
def resumed(device: str) -> Results:
    """Training that goes on from a file, as if it had not been stopped."""
    results: Results = {}
    for name, build in _SOME.items():
        model = _model(device)
        optimizer = build(model.parameters())
        _steps(device, model, optimizer, 2)
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=True)
        other = copy.deepcopy(_model(device))
        other.load_state_dict(loaded["model"])
        resumed = build(other.parameters())
        resumed.load_state_dict(loaded["optimizer"])
        _steps(device, model, optimizer, 2)
        _steps(device, other, resumed, 2)
        results |= state_of(model, f"{name}: ") | state_of(other, f"{name} resumed: ")
        results |= {f"{name} {key}": value for key, value in _states(resumed).items()}
    return results
