"""Owns: programs in which Python takes part in autograd: checkpoints, hooks, functions, modes."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from ..inputs import gradients_of, loss_of, normal, on_device, trained
from ..registry import Results, program


def _net(device: str, *, dropout: float = 0.0) -> nn.Sequential:
    layers = (nn.Linear(6, 12), nn.GELU(), nn.Dropout(dropout), nn.Linear(12, 6), nn.Tanh())
    return on_device(nn.Sequential(*layers), device)


@program
def checkpoints(device: str) -> Results:
    """Checkpointed layers with dropout, which must draw the same numbers again."""
    results: Results = {}
    for reentrant in (False, True):
        for kept in (True, False):
            net = _net(device, dropout=0.3 if kept else 0.0)
            x = normal(device, 5, 6, grad=True)
            torch.manual_seed(3)
            how: dict[str, Any] = {"use_reentrant": reentrant, "preserve_rng_state": kept}
            y = checkpoint(net, x, **how)
            y = checkpoint_sequential(net, 2, y, **how)
            loss_of(y).backward()
            assert x.grad is not None
            prefix = f"{reentrant} {kept} "
            results |= {f"{prefix}output": y.detach(), f"{prefix}grad": x.grad}
            results |= gradients_of(net, prefix)
            results[f"{prefix}afterwards"] = torch.rand(3, device=device)
    net = _net(device)
    x = normal(device, 5, 6, grad=True)
    with torch.autocast(device, torch.bfloat16):
        y = checkpoint(net, x, use_reentrant=False)
    loss_of(y).backward()
    return results | gradients_of(net, "autocast ")


@program
def hooks(device: str) -> Results:
    """Hooks of modules, tensors, parameters and saved tensors."""
    net = _net(device)
    seen: dict[str, Tensor | str] = {}

    def note(name: str) -> Any:
        def hook(*arguments: Any) -> None:
            tensors = [x for x in arguments if isinstance(x, Tensor)]
            seen[name] = tensors[-1].detach().clone() if tensors else "no tensor"

        return hook

    net[0].register_forward_hook(lambda module, inputs, output: output * 2)
    net[3].register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))
    net[0].register_full_backward_hook(_halved)
    weights = dict(net.named_parameters())
    weights["3.weight"].register_hook(lambda gradient: gradient * 3)
    weights["0.weight"].register_post_accumulate_grad_hook(note("accumulated"))
    packed: list[Tensor] = []

    def pack(x: Tensor) -> int:
        packed.append(x.detach().to("cpu", copy=True))
        return len(packed) - 1

    x = normal(device, 5, 6, grad=True)
    y = x * 2
    y.retain_grad()
    y.register_hook(note("tensor"))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda index: packed[index].to(device)):
        out = net(y)
    loss_of(out).backward()
    assert x.grad is not None
    assert y.grad is not None
    results: Results = {"output": out.detach(), "x": x.grad, "y": y.grad}
    net2 = _net(device)
    with torch.autograd.graph.save_on_cpu():
        results |= trained(net2, x.detach(), prefix="saved on the CPU: ")
    return results | gradients_of(net) | seen


def _halved(module: nn.Module, gave: Any, got: Any) -> Any:
    return (gave[0] * 0.5,)


class _Cube(torch.autograd.Function):
    """x³ whose backward pass is itself differentiable."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grads[0] * 3 * x**2


class _SplitScale(torch.autograd.Function):
    """Two outputs, one without gradient, and an input that is a number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Any:
        ctx.factor = factor
        positive = x > 0
        ctx.mark_non_differentiable(positive)
        return x * factor, positive

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, *grads: Any) -> Any:
        return grads[0] * ctx.factor, None  # type: ignore[attr-defined]


@program
def own_functions(device: str) -> Results:
    """torch.autograd.Function, twice differentiable and once."""
    x = normal(device, 30, grad=True)
    cube: Any = _Cube.apply
    split: Any = _SplitScale.apply
    (first,) = torch.autograd.grad(cube(x).sin().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    scaled, positive = split(x, 2.5)
    (third,) = torch.autograd.grad(scaled.cos().sum(), x)
    return {"first": first.detach(), "second": second, "third": third, "positive": positive}


@program
def modes(device: str) -> Results:
    """Inference mode, gradients switched off and on, anomaly mode, detached parts, in-place."""
    net = _net(device)
    x = normal(device, 5, 6, grad=True)
    with torch.inference_mode():
        inferred = net(x)
    with torch.no_grad():
        frozen = net(x)
        with torch.enable_grad():
            thawed = net(x)
    with torch.autograd.set_detect_anomaly(True):
        loss_of(thawed).backward()
    y = x.clone()
    y[:, 1:3] = y[:, 3:5].detach() * 2
    y.mul_(3).clamp_(-1, 1)
    y[0].add_(x[1])
    loss_of(y).backward()
    assert x.grad is not None
    results: Results = {"inferred": inferred.clone(), "frozen": frozen, "written": y.detach()}
    results |= gradients_of(net) | {"grad": x.grad}
    try:
        with torch.autograd.set_detect_anomaly(True):
            (x * float("nan")).sqrt().sum().backward()
    except RuntimeError as error:
        results["error"] = str(error)
    try:
        z = x.exp()
        z.add_(1)
        z.sum().backward()
    except RuntimeError as error:
        # A tensor's type has a name for each device.
        results["changed too early"] = re.sub(r"\[\S+ ", "[", str(error))
    return results
