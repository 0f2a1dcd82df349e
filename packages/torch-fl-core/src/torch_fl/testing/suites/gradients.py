"""Owns: calls that also return gradients: backward, twice backward, forward mode.

What is multiplied with a gradient is drawn when the reference runs and copied for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from ..harness import tree
from ..harness.cases import Case, NotASample
from ..harness.movers import Arguments, Mover
from .samples import samples_of


class _Drawn:
    """Random tensors like others, drawn once and copied to whichever device asks for them."""

    def __init__(self) -> None:
        self._drawn: list[torch.Tensor] | None = None

    def like(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if self._drawn is None:
            generator = torch.Generator().manual_seed(len(tensors))
            self._drawn = [_random_like(tensor, generator) for tensor in tensors]
        return [
            Mover(tensor.device).tensor(drawn)
            for tensor, drawn in zip(tensors, self._drawn, strict=True)
        ]


def _random_like(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if tensor.layout != torch.strided:  # random values need the tensor's own sparsity pattern
        return tensor.detach().clone()
    return torch.randn(tensor.shape, dtype=tensor.dtype, generator=generator)


def _differentiable(node: Any) -> list[torch.Tensor]:
    return [tensor for tensor in tree.tensors(node) if tensor.requires_grad]


class WithGradients:
    """A function, then the gradients of its results with respect to its inputs.

    Args:
        function: what is called.
        process: removes what is not unique in a result, such as the sign of an eigenvector.
        more: other tensors to differentiate by, looked up after the call.
        twice: the gradients' gradients too.
        optional: a call with nothing to differentiate is a sample of its result.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        process: Callable[[Any], Any] = lambda result: result,
        more: Callable[[], Sequence[torch.Tensor]] = tuple,
        twice: bool = False,
        optional: bool = False,
    ) -> None:
        self._function = function
        self._process = process
        self._more = more
        self._optional = optional
        self._twice = twice
        self._cotangents = _Drawn()
        self._second_cotangents = _Drawn()

    def __call__(self, *positional: Any, **keyword: Any) -> dict[str, Any]:
        result = self._process(self._function(*positional, **keyword))
        results = _differentiable(result)
        inputs = _differentiable([(positional, keyword), list(self._more())])
        if not results or not inputs:
            if self._optional:
                return {"result": result}
            raise NotASample("nothing to differentiate")
        cotangents = self._cotangents.like(results)
        if not self._twice:
            gradients = torch.autograd.grad(results, inputs, cotangents, allow_unused=True)
            return {"result": result, "gradients": list(gradients)}
        for cotangent in cotangents:
            cotangent.requires_grad_()
        gradients = torch.autograd.grad(
            results, inputs, cotangents, allow_unused=True, create_graph=True
        )
        second = _differentiable(list(gradients))
        if not second:
            raise NotASample("the gradients are constant")
        twice = torch.autograd.grad(
            second, [*inputs, *cotangents], self._second_cotangents.like(second), allow_unused=True
        )
        return {"gradients": list(gradients), "second": list(twice)}


class WithTangents:
    """A function in forward mode: its results and their tangents."""

    def __init__(self, function: Callable[..., Any], process: Callable[[Any], Any]) -> None:
        self._function = function
        self._process = process
        self._tangents = _Drawn()

    def __call__(self, *positional: Any, **keyword: Any) -> dict[str, Any]:
        inputs = _differentiable((positional, keyword))
        if not inputs:
            raise NotASample("nothing to differentiate")
        plain = [tensor.detach() for tensor in inputs]
        tangents = self._tangents.like(plain)
        with forward_ad.dual_level():
            duals = {
                id(tensor): forward_ad.make_dual(primal, tangent)
                for tensor, primal, tangent in zip(inputs, plain, tangents, strict=True)
            }

            def dual(path: str, leaf: Any) -> Any:
                return duals.get(id(leaf), leaf)

            called = self._function(
                *tree.transform(positional, dual), **tree.transform(keyword, dual)
            )
            results = tree.tensors(self._process(called))
            pairs = [forward_ad.unpack_dual(tensor) for tensor in results]
            if not any(isinstance(pair.tangent, torch.Tensor) for pair in pairs):
                raise NotASample("no result has a tangent")
            return {
                "results": [pair.primal for pair in pairs],
                "tangents": [pair.tangent for pair in pairs],
            }


def _cases(op: Any, dtype: torch.dtype, make: Callable[[Any], Any]) -> Iterator[Case]:
    if dtype not in op.supported_backward_dtypes("cpu"):
        return
    for index, sample in samples_of(op, dtype, requires_grad=True):
        arguments = Arguments.of_sample(op.full_name, sample)
        yield Case(f"{dtype} sample {index}", make(sample.output_process_fn_grad), arguments)


def backward(op: Any, dtype: torch.dtype) -> Iterator[Case]:
    """Results and gradients of each sample."""
    return _cases(op, dtype, lambda process: WithGradients(op.op, process))


def twice_backward(op: Any, dtype: torch.dtype) -> Iterator[Case]:
    """Gradients and their gradients, where the operator has them."""
    if op.supports_gradgrad:
        yield from _cases(op, dtype, lambda process: WithGradients(op.op, process, twice=True))


def forward_mode(op: Any, dtype: torch.dtype) -> Iterator[Case]:
    """Results and tangents, where the operator has them."""
    if op.supports_forward_ad:
        yield from _cases(op, dtype, lambda process: WithTangents(op.op, process))
