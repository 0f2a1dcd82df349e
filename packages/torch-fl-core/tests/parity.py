"""Owns: the same work done on the CPU and on flagos, and the comparison of what comes out."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from torch_fl.testing.harness import tree
from torch_fl.testing.harness.call import Outcome, perform
from torch_fl.testing.harness.compare import Expectation, compare
from torch_fl.testing.harness.movers import CPU, Arguments, Mover

if TYPE_CHECKING:
    from collections.abc import Callable

FLAGOS = torch.device("flagos", 0)


def both(function: Callable[..., Any], *inputs: Any, seed: int = 0) -> tuple[Outcome, Outcome]:
    """What `function` of `inputs` does on the CPU and on flagos, on copies of the inputs."""
    arguments = Arguments(inputs, {})
    expected, actual = (
        perform(function, Mover(device).arguments(arguments), device, seed)
        for device in (CPU, FLAGOS)
    )
    return expected, actual


def assert_same(
    function: Callable[..., Any], *inputs: Any, exact: bool = True, seed: int = 0
) -> None:
    """`function` of `inputs` leaves the same behind on flagos as on the CPU.

    Compared are values, dtypes, strides, aliasing and version counters, of results and inputs.

    Args:
        function: takes the inputs; whatever it returns may be a tree of tensors and plain values.
        inputs: CPU tensors, or trees of them; each side gets a copy. "cpu" as a string or
            torch.device becomes the side's device.
        exact: bit for bit; otherwise within PyTorch's tolerance for the dtype.
        seed: of both devices, set right before the call.
    """
    expected, actual = both(function, *inputs, seed=seed)
    worst = compare(expected, actual, Expectation(FLAGOS))
    assert not exact or worst == 0.0, f"the values differ from the CPU's by up to {worst:.3g}"


def assert_close(function: Callable[..., Any], *inputs: Any, seed: int = 0) -> None:
    """As `assert_same`, for what PyTorch itself computes in another way on accelerators.

    Compared are structure, dtypes, shapes, and values within PyTorch's tolerance.
    """
    expected, actual = both(function, *inputs, seed=seed)
    assert tree.structure(actual.result) == tree.structure(expected.result)
    wanted = [*tree.tensors(expected.result), *expected.inputs]
    given = [*tree.tensors(actual.result), *actual.inputs]
    for index, (want, got) in enumerate(zip(wanted, given, strict=True)):
        assert got.device == FLAGOS
        torch.testing.assert_close(
            got.cpu(), want, equal_nan=True, msg=lambda text, i=index: f"tensor {i}: {text}"
        )


def with_gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, returning also the gradients of its inputs for uneven output gradients."""

    def run(*inputs: Any) -> Any:
        outputs = function(*inputs)
        given = [x for x in tree.tensors(inputs) if x.requires_grad]
        return outputs, gradients(outputs, given)

    return run


def gradients(outputs: Any, inputs: list[torch.Tensor], **options: Any) -> list[Any]:
    """torch.autograd.grad of all differentiable `outputs`, for uneven gradients of these."""
    differentiable = [x for x in tree.tensors(outputs) if x.requires_grad]
    return list(
        torch.autograd.grad(
            differentiable,
            inputs,
            [uneven(x.shape, x.dtype).to(x.device) for x in differentiable],
            allow_unused=True,
            **options,
        )
    )


def uneven(shape: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A CPU tensor of values in (-1, 1) without a pattern, the same each time."""
    count = torch.Size(shape).numel()
    values = torch.sin(torch.arange(1, count + 1, dtype=torch.float64) * 1.7)
    return values.to(dtype).reshape(shape).clone()  # no view


def leaf(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """`uneven`, asking for a gradient."""
    return uneven(shape, dtype).requires_grad_()


def through(module: torch.nn.Module) -> Callable[..., Any]:
    """A copy of `module` where its inputs are: outputs, all gradients, and buffers afterwards."""

    def run(*inputs: Any) -> Any:
        mine = copy.deepcopy(module).to(tree.tensors(inputs)[0].device)
        outputs = mine(*inputs)
        wanted = [x for x in (*tree.tensors(inputs), *mine.parameters()) if x.requires_grad]
        given = gradients(outputs, wanted) if torch.is_grad_enabled() and wanted else []
        return outputs, given, list(mine.buffers())

    return run
