"""Owns: what a case of an optimizer does: steps, a restart from the saved state, more steps.

Stock CPU is asked to do what an accelerator does: where nobody chooses, PyTorch takes ``foreach``
there and a loop on the CPU, and it forbids ``capturable`` on the CPU though all of it works.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from typing import Any, Final
from unittest import mock

import torch

_STEPS: Final = 4
_MATRICES: Final = ((3, 2), (5, 4), (1, 7))  # Muon takes no others
_MORE_SHAPES: Final = ((6,), (2, 3, 4), (1,), (0, 3))

Gradients = list[list[torch.Tensor]]


class Steps:
    """Parameters and state after all steps, of an optimizer and of one restarted half-way."""

    def __init__(
        self, info: Any, schedulers: tuple[Callable[[Any], Any], ...] = (), sparse: bool = False
    ) -> None:
        self._info = info
        self._schedulers = schedulers
        self._sparse = sparse

    def __call__(
        self,
        device: torch.device,
        parameters: list[torch.Tensor],
        gradients: Gradients,
        options: dict[str, Any],
    ) -> Any:
        options = _as_on_an_accelerator(self._info, options, self._sparse)
        half = len(gradients) // 2
        with _capturable_anywhere():
            optimizer = self._optimizer(parameters, options)
            self._advance(optimizer, parameters, gradients[:half])
            file = io.BytesIO()
            torch.save(optimizer.state_dict(), file)
            file.seek(0)
            copies = [parameter.detach().clone().requires_grad_() for parameter in parameters]
            restarted = self._optimizer(copies, options)
            restarted.load_state_dict(torch.load(file, map_location=device, weights_only=True))
            self._advance(optimizer, parameters, gradients[half:])
            self._advance(restarted, copies, gradients[half:])
        return {
            "state": _state(optimizer, parameters),
            "parameters": [parameter.detach() for parameter in copies],
            "restarted": _state(restarted, copies),
        }

    def _optimizer(self, parameters: list[torch.Tensor], options: dict[str, Any]) -> Any:
        options = deepcopy(options)
        if not self._info.supports_param_groups or self._sparse:
            return self._info.optim_cls(parameters, **options)
        first, rest = parameters[:1], parameters[1:]
        return self._info.optim_cls([{"params": first}, {"params": rest}], **options)

    def _advance(
        self, optimizer: Any, parameters: list[torch.Tensor], gradients: Gradients
    ) -> None:
        schedulers = [make(optimizer) for make in self._schedulers]
        for step in gradients:

            def closure(step: list[torch.Tensor] = step) -> Any:
                for parameter, gradient in zip(parameters, step, strict=True):
                    parameter.grad = gradient.to_sparse(1) if self._sparse else gradient.clone()
                pairs = zip(parameters, step, strict=True)
                return torch.stack([(p.detach() * g).abs().sum() for p, g in pairs]).sum().float()

            if self._info.step_requires_closure:
                optimizer.step(closure)
            else:
                closure()
                optimizer.step()
            for scheduler in schedulers:
                plateau = isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
                scheduler.step(0.5) if plateau else scheduler.step()


class Differentiable:
    """Gradients through two steps with ``differentiable=True``."""

    def __init__(self, info: Any) -> None:
        self._info = info

    def __call__(
        self,
        device: torch.device,
        parameters: list[torch.Tensor],
        gradients: Gradients,
        options: dict[str, Any],
    ) -> Any:
        moving = [parameter.clone() for parameter in parameters]
        optimizer = self._info.optim_cls(moving, **deepcopy(options))
        sources = [[tensor.clone().requires_grad_() for tensor in step] for step in gradients[:2]]
        for step in sources:
            for parameter, gradient in zip(moving, step, strict=True):
                parameter.grad = gradient
            optimizer.step()
        total = torch.stack([parameter.abs().sum() for parameter in moving]).sum()
        inputs = [*parameters, *sources[0], *sources[1]]
        return list(torch.autograd.grad([total], inputs, allow_unused=True))


def tensors_for(
    info: Any, dtype: torch.dtype, sparse: bool
) -> tuple[list[torch.Tensor], Gradients]:
    """Random parameters and gradients, of shapes that the optimizer takes."""
    shapes: tuple[tuple[int, ...], ...] = _MATRICES
    if info.name != "Muon" and not sparse:
        shapes += _MORE_SHAPES
    parameters = [torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes]
    steps = [[torch.randn(shape, dtype=dtype) for shape in shapes] for _ in range(_STEPS)]
    return parameters, steps


def _as_on_an_accelerator(info: Any, options: dict[str, Any], sparse: bool) -> dict[str, Any]:
    chosen = not {"foreach", "fused", "differentiable"}.isdisjoint(options)
    # Not for a tensor lr or sparse gradients: there accelerators take the loop too.
    plain = not isinstance(options.get("lr"), torch.Tensor) and not sparse
    if "foreach" in info.supported_impls and not chosen and plain:
        return {**options, "foreach": True}
    return options


@contextmanager
def _capturable_anywhere() -> Iterator[None]:
    """Let PyTorch's check of ``capturable`` pass on the CPU too, for the time of the call."""
    name = "_get_capturable_supported_devices"
    with ExitStack() as stack:
        for module_name, module in list(sys.modules.items()):
            if module_name.startswith("torch.optim.") and hasattr(module, name):
                allowed = [*getattr(module, name)(), "cpu"]
                stack.enter_context(mock.patch.object(module, name, _always(allowed)))
        yield


def _always(value: list[str]) -> Callable[..., list[str]]:
    return lambda *positional, **keyword: value


def _state(optimizer: Any, parameters: list[torch.Tensor]) -> list[Any]:
    """Learning rates, and for each parameter its state. Numbers that PyTorch keeps in tensors, on
    the CPU unless they are capturable, are numbers here."""
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    found: list[Any] = []
    for parameter in parameters:
        state = dict(optimizer.state.get(parameter, {}))
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and value.dim() == 0 and parameter.dim():
                if optimizer.param_groups[0].get("capturable"):
                    assert value.device == parameter.device, f"{name} is on {value.device}"
                state[name] = value.item()
        found.append(state)
    return [rates, found]
