"""Owns: programs with optimizers: each by loop, by operators over lists, fused, and capturable."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn, optim

from ..inputs import integers, normal, on_device, state_of
from ..registry import Results, program

_ALL: dict[str, Callable[..., optim.Optimizer]] = {
    "Adadelta": optim.Adadelta,
    "Adafactor": optim.Adafactor,
    "Adagrad": optim.Adagrad,
    "Adam": optim.Adam,
    "Adam amsgrad": lambda p, **how: optim.Adam(p, amsgrad=True, weight_decay=0.1, **how),
    "AdamW": lambda p, **how: optim.AdamW(p, lr=0.01, **how),
    "Adamax": optim.Adamax,
    "ASGD": optim.ASGD,
    "NAdam": optim.NAdam,
    "RAdam": optim.RAdam,
    "RMSprop": lambda p, **how: optim.RMSprop(p, momentum=0.9, centered=True, **how),
    "Rprop": optim.Rprop,
    "SGD": lambda p, **how: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, **how),
}


# (Not Adagrad: PyTorch refuses its kernel to CUDA by name, and to no device from outside.)
_FUSED = ("Adam", "Adam amsgrad", "AdamW", "SGD")


_NOT_CAPTURABLE = ("Adafactor", "Adagrad", "SGD")


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


def _with(
    device: str, names: Iterable[str], dtype: torch.dtype = torch.float32, **how: Any
) -> Results:
    results: Results = {}
    for name in names:
        model = _model(device, dtype)
        optimizer = _ALL[name](model.parameters(), **how)
        _steps(device, model, optimizer)
        results |= {f"{name}: {key}": value for key, value in state_of(model).items()}
        results |= {f"{name}: {key}": value for key, value in _states(optimizer).items()}
    return results


@program
def by_default(device: str) -> Results:
    """The implementation that PyTorch chooses."""
    return _with(device, _ALL)


@program
def for_loop(device: str) -> Results:
    """One parameter after the other."""
    return _with(device, _ALL, foreach=False)


@program
def foreach(device: str) -> Results:
    """Operators over lists of parameters, in float32 and bfloat16."""
    results = _with(device, _ALL, foreach=True)
    half = _with(device, ("Adam", "SGD", "RMSprop"), torch.bfloat16, foreach=True)
    return results | {f"bfloat16 {name}": value for name, value in half.items()}


@program
def fused(device: str) -> Results:
    """One kernel for all, in float32 and bfloat16, also one that unscales the gradients."""
    results: Results = {}
    for name in _FUSED:
        try:
            results |= _with(device, [name], fused=True)
        except (RuntimeError, NotImplementedError) as error:
            results[f"{name}: error"] = str(error)
    half = _with(device, ("AdamW", "SGD"), torch.bfloat16, fused=True)
    results |= {f"bfloat16 {name}": value for name, value in half.items()}
    for name in ("AdamW", "SGD"):
        model = _model(device)
        optimizer = _ALL[name](model.parameters(), fused=True)
        scaler = torch.amp.GradScaler(device, init_scale=1024.0, growth_interval=1)
        for factor in (1.0, 1e38, 1.0):
            optimizer.zero_grad()
            loss = model(normal(device, 5, 7)).square().mean() * factor
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        results |= state_of(model, f"scaled {name}: ")
        results[f"scaled {name}: scale"] = torch.tensor(scaler.get_scale())
    return results


@program(accelerator=True)
def capturable(device: str) -> Results:
    """Steps that are counted on the device, so that they could be captured."""
    names = [name for name in _ALL if name not in _NOT_CAPTURABLE]
    results: Results = {}
    for foreach in (False, True):
        for key, value in _with(device, names, capturable=True, foreach=foreach).items():
            results[f"{foreach} {key}"] = value
    fused = _with(device, ("Adam", "AdamW"), capturable=True, fused=True)
    return results | {f"fused {key}": value for key, value in fused.items()}


@program
def differentiable(device: str) -> Results:
    """Gradients through an optimizer's steps, to the parameters that it began with."""
    start = normal(device, 6, grad=True)
    moving = start.clone()
    target = normal(device, 6, seed=2)
    optimizer = optim.SGD([moving], lr=0.1, momentum=0.9, differentiable=True)
    for _ in range(3):
        (moving.grad,) = torch.autograd.grad((moving - target).pow(4).sum(), moving)
        moving.grad.requires_grad_()
        optimizer.step()
    moving.sum().backward()
    assert start.grad is not None
    return {"moved": moving.detach(), "grad": start.grad}


@program
def other_optimizers(device: str) -> Results:
    """LBFGS with line search, Muon, and SparseAdam on an embedding's sparse gradients."""
    model = _model(device)
    lbfgs = optim.LBFGS(model.parameters(), lr=0.5, max_iter=6, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        lbfgs.zero_grad()
        loss: torch.Tensor = (model(normal(device, 5, 7)) - 1).square().mean()
        loss.backward()
        return loss

    results: Results = {"loss": lbfgs.step(closure).detach()} | state_of(model, "lbfgs: ")
    model = on_device(
        nn.Sequential(nn.Linear(7, 9, bias=False), nn.Linear(9, 3, bias=False)), device
    )
    _steps(device, model, optim.Muon(model.parameters(), lr=0.02))
    results |= state_of(model, "muon: ")
    embedding = on_device(nn.Embedding(12, 4, sparse=True), device)
    sparse = optim.SparseAdam(embedding.parameters(), lr=0.05)
    for step in range(3):
        sparse.zero_grad()
        embedding(integers(device, 12, 6, seed=step)).square().sum().backward()
        sparse.step()
    return results | state_of(embedding, "sparse: ") | _states(sparse)
