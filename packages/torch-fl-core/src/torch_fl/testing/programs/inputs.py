"""Owns: what programs compute with, the same in every process, and how they show what came out.

Nothing here draws from a default generator: on the CPU that would be the one whose numbers a
program is about.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from .registry import Results, Skipped

__all__ = [
    "distinct",
    "each",
    "gradients_of",
    "integers",
    "leaves_of",
    "loss_of",
    "needs_kernel",
    "normal",
    "on_device",
    "state_of",
    "trained",
]

Module = TypeVar("Module", bound=nn.Module)

_SEED_AFTER_BUILDING = 1234


def normal(
    device: str,
    *shape: int,
    seed: int = 1,
    dtype: torch.dtype = torch.float32,
    scale: float = 1.0,
    grad: bool = False,
) -> Tensor:
    """Normally distributed numbers of the given shape and dtype, a leaf; `grad` makes it a
    parameter."""
    generator = torch.Generator().manual_seed(seed)
    drawn_as = torch.complex128 if dtype.is_complex else torch.float64
    values = torch.randn(shape, generator=generator, dtype=drawn_as) * scale
    return values.to(dtype).to(device).requires_grad_(grad)


def integers(
    device: str, high: int, *shape: int, seed: int = 1, dtype: torch.dtype = torch.int64
) -> Tensor:
    """Integers from 0 to `high` - 1."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(high, shape, generator=generator).to(dtype).to(device)


def distinct(device: str, *shape: int, seed: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers without two equal ones, in no order."""
    count = torch.Size(shape).numel()
    values = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return (values - count // 3).reshape(shape).to(dtype).to(device)


def on_device(module: Module, device: str, *, seed: int = 2, scale: float = 0.2) -> Module:
    """The module on the device, in float32, with parameters that are the same in every process.

    The default generators are seeded afterwards: building drew from the CPU's.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(drawn * scale)
    moved = module.to(device)
    torch.manual_seed(_SEED_AFTER_BUILDING)
    return moved


def loss_of(*outputs: Any) -> Tensor:
    """A number to which every element of the outputs contributes differently.

    Outputs may be nested in tuples and lists; what cannot have a gradient is passed over.
    """
    total: Tensor | None = None
    for position, leaf in enumerate(leaves_of(outputs)):
        if not (leaf.is_floating_point() or leaf.is_complex()):
            continue
        real = torch.view_as_real(leaf.resolve_conj()) if leaf.is_complex() else leaf
        weights = normal(str(leaf.device), *real.shape, seed=100 + position, dtype=real.dtype)
        part = (real * weights).sum().to(torch.promote_types(real.dtype, torch.float32))
        total = part if total is None else total + part
    assert total is not None, "nothing to differentiate"
    return total


def leaves_of(tree: Any) -> Iterator[Tensor]:
    """The tensors of nested tuples and lists, from left to right."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for part in tree:
            yield from leaves_of(part)


def gradients_of(module: nn.Module, prefix: str = "") -> Results:
    """The gradients of all parameters; a text where there is none."""
    return {
        f"{prefix}grad of {name}": "none" if parameter.grad is None else parameter.grad
        for name, parameter in module.named_parameters()
    }


def state_of(module: nn.Module, prefix: str = "") -> Results:
    """All parameters and buffers, as they are now."""
    return {f"{prefix}{name}": value.clone() for name, value in module.state_dict().items()}


def trained(module: nn.Module, *inputs: Any, prefix: str = "", **options: Any) -> Results:
    """Runs a module forward and backward; its outputs, all gradients, and its buffers."""
    module.zero_grad(set_to_none=True)
    outputs = module(*inputs, **options)
    loss_of(outputs).backward()
    results: Results = {
        f"{prefix}output {index}": leaf.detach() for index, leaf in enumerate(leaves_of(outputs))
    }
    for index, leaf in enumerate(leaves_of(inputs)):
        if leaf.grad is not None:
            results[f"{prefix}grad of input {index}"] = leaf.grad
            leaf.grad = None
    results |= gradients_of(module, prefix)
    results |= {f"{prefix}{name}": value.clone() for name, value in module.named_buffers()}
    return results


@contextlib.contextmanager
def needs_kernel(what: str, *texts: str) -> Iterator[None]:
    """Turns a RuntimeError with one of these texts into `Skipped`: the device lacks `what`."""
    try:
        yield
    except RuntimeError as error:
        if any(text in str(error) for text in texts):
            raise Skipped(f"this device has no {what}") from error
        raise


def each(cases: Iterable[tuple[str, Callable[[], Results]]]) -> Results:
    """The results of several cases, each name with its case's in front."""
    results: Results = {}
    for name, case in cases:
        results |= {f"{name}: {key}": value for key, value in case().items()}
    return results
