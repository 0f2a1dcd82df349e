"""Owns: programs with torch.func, forward mode, and derivatives of derivatives."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..inputs import loss_of, normal, on_device
from ..registry import Results, program


def _net(device: str, *, dropout: float = 0.0) -> nn.Sequential:
    layers = (nn.Linear(6, 12), nn.GELU(), nn.Dropout(dropout), nn.Linear(12, 6), nn.Tanh())
    return on_device(nn.Sequential(*layers), device)


@program
def higher_orders(device: str) -> Results:
    """Derivatives of derivatives, of several outputs at once, of unused inputs."""
    x, w = normal(device, 4, 6, grad=True), normal(device, 6, 6, seed=2, scale=0.4, grad=True)

    def energy(x: Tensor) -> Tensor:
        return torch.tanh(x @ w).pow(2).sum()

    value = energy(x)
    orders: list[Tensor] = [value]
    current = value
    for _ in range(3):
        (current,) = torch.autograd.grad(current.sum(), x, create_graph=True)
        orders.append(current)
    both = torch.autograd.grad(
        [(x @ w).sum(), x.exp().mean()], [x, w], grad_outputs=[x.new_ones(()), None]
    )
    batched = torch.autograd.grad(
        torch.tanh(x @ w)[0], x, torch.eye(6, device=device), is_grads_batched=True
    )
    unused = torch.autograd.grad(x.sum(), [x, w], allow_unused=True, materialize_grads=True)
    results: Results = {f"order {index}": order.detach() for index, order in enumerate(orders)}
    results |= {f"both {index}": part for index, part in enumerate(both)}
    matrix = torch.autograd.functional.hessian(energy, x.detach()[:1])
    results |= {"batched": batched[0], "unused": unused[1], "hessian": matrix}
    return results


@program
def forward_mode(device: str) -> Results:
    """Derivatives carried forward, through layers, attention and convolution."""
    x, direction = normal(device, 2, 3, 8, 8), normal(device, 2, 3, 8, 8, seed=2)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Softplus(), nn.Flatten())
    net = on_device(net, device)
    with torch.no_grad(), forward_ad.dual_level():
        dual = forward_ad.make_dual(x, direction)
        output = forward_ad.unpack_dual(net(dual).softmax(-1))
    assert output.tangent is not None
    with sdpa_kernel(SDPBackend.MATH):  # the only one that has it
        value, tangent, *_ = jvp(
            lambda q: F.scaled_dot_product_attention(q, x, x), (x,), (direction,)
        )
    return {
        "value": output.primal, "tangent": output.tangent,
        "attention": value, "its tangent": tangent,
    }  # fmt: skip


@program
def transforms(device: str) -> Results:
    """torch.func: vmap, grad, jacobians, hessians, and their compositions."""
    net = _net(device)
    weights = {name: value.detach() for name, value in net.named_parameters()}
    x, y = normal(device, 7, 6), normal(device, 7, 6, seed=2)

    def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        apart: Tensor = functional_call(net, weights, (x,)) - y
        return apart.square().sum()

    def one(x: Tensor) -> Tensor:
        return torch.sin(x @ weights["0.weight"].mT).cumsum(-1)

    each_sample = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, y)
    results: Results = {f"grad of {name}": value for name, value in each_sample.items()}
    results |= {
        "mapped": vmap(one, in_dims=1, out_dims=1)(y.mT.contiguous()[:6]),
        "reverse": jacrev(one)(x[0]),
        "forward": jacfwd(one)(x[0]),
        "hessian": hessian(lambda x: one(x).square().sum())(x[0]),
        "sorted": vmap(lambda row: row.sort()[0])(x),
        "solved": vmap(torch.linalg.solve, in_dims=(None, 0))(
            torch.eye(6, device=device) + 0.1 * x[:6], x
        ),
        "chunks": vmap(lambda row: row.softmax(0), chunk_size=3)(x),
    }
    torch.manual_seed(5)
    for randomness in ("different", "same"):
        drawn = vmap(lambda row: row + torch.rand_like(row), randomness=randomness)(x)
        results[f"drawn {randomness}"] = drawn
    return results


@program
def ensembles(device: str) -> Results:
    """Several models at once, their weights stacked."""
    models = [_net(device) for _ in range(3)]
    with torch.no_grad():
        for factor, model in enumerate(models, 1):
            for parameter in model.parameters():
                parameter.mul_(factor)
    weights, buffers = stack_module_state(models)
    x = normal(device, 5, 6)

    def call(weights: Any, buffers: Any, x: Tensor) -> Any:
        return functional_call(models[0], (weights, buffers), (x,))

    out = vmap(call, in_dims=(0, 0, None))(weights, buffers, x)
    loss_of(out).backward()
    results: Results = {"output": out.detach()}
    for name, weight in weights.items():
        results[f"grad of {name}"] = "none" if weight.grad is None else weight.grad
    return results
