"""Owns: what ``dispatch.py`` measures, operators and training steps, and the goal of each.

Tensors are 4x4 float32 unless a case says otherwise, so that the
time is the host's and not the kernel's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from _slices import Statement

CALL_NS = 120.0
TENSOR_NS = 65.0
VIEW_NS = 20.0
STEP_RATIO = 1.10


@dataclass(frozen=True)
class Goal:
    """At most so much more than natively: nanoseconds a call, or a ratio. None: no goal."""

    nanoseconds: float | None = None
    ratio: float | None = None

    def met(self, difference_ns: float, ratio: float) -> bool | None:
        """Whether the figures reach the goal; None without one."""
        if self.nanoseconds is not None:
            return difference_ns <= self.nanoseconds
        if self.ratio is not None:
            return ratio <= self.ratio
        return None

    def __str__(self) -> str:
        if self.nanoseconds is not None:
            return f"{self.nanoseconds:.0f} ns"
        return "-" if self.ratio is None else f"{self.ratio:.2f} x"


@dataclass(frozen=True)
class Case:
    """One row. ``build`` makes the statement for a device."""

    name: str
    tensors: int
    """tensor arguments of the operator"""
    goal: Goal
    build: Callable[[torch.device], Statement]
    grad: bool = False
    """runs with autograd on"""
    backward: bool = False
    """runs a backward pass, and so uses the autograd engine"""
    launches: int = 1
    """an estimate of the kernels in one call; bounds the queue on asynchronous devices"""


def _operator(
    name: str,
    tensors: int,
    source: str,
    names: Callable[[torch.device], dict[str, Any]],
    **more: Any,
) -> Case:
    goal = more.pop("goal", Goal(nanoseconds=CALL_NS + TENSOR_NS * tensors))
    return Case(name, tensors, goal, lambda device: Statement(source, names(device)), **more)


def _square(device: torch.device) -> torch.Tensor:
    return torch.randn(4, 4, device=device)


def _binary(function: Any) -> Callable[[torch.device], dict[str, Any]]:
    return lambda device: {"f": function, "a": _square(device), "b": _square(device)}


def _addmm(device: torch.device) -> dict[str, Any]:
    return {**_binary(torch.addmm)(device), "c": _square(device)}


def _layer_norm(device: torch.device) -> dict[str, Any]:
    weight, bias = torch.ones(4, device=device), torch.zeros(4, device=device)
    function = torch.nn.functional.layer_norm
    return {"f": function, "a": _square(device), "n": (4,), "w": weight, "b": bias}


def _embedding(device: torch.device) -> dict[str, Any]:
    index = torch.tensor([0, 3, 1, 2], device=device)
    return {"f": torch.embedding, "w": _square(device), "i": index}


def _in_place(device: torch.device) -> dict[str, Any]:
    # Zeros, so that millions of additions do not end in infinities.
    return {"f": _square(device).add_, "b": torch.zeros(4, 4, device=device)}


def _out(device: torch.device) -> dict[str, Any]:
    return {**_binary(torch.add)(device), "o": torch.empty(4, 4, device=device)}


def _grad_mm(device: torch.device) -> dict[str, Any]:
    first = _square(device).requires_grad_()
    return {"f": torch.mm, "a": first, "b": _square(device)}


def _grad_mm_backward(device: torch.device) -> dict[str, Any]:
    return {**_grad_mm(device), "grad": torch.autograd.grad, "g": _square(device)}


OPERATORS: list[Case] = [
    _operator("add", 2, "f(a, b)", _binary(torch.add)),
    _operator("mul", 2, "f(a, b)", _binary(torch.mul)),
    _operator("relu", 1, "f(a)", lambda d: {"f": torch.relu, "a": _square(d)}),
    _operator("mm", 2, "f(a, b)", _binary(torch.mm)),
    _operator("addmm", 3, "f(c, a, b)", _addmm),
    _operator("softmax", 1, "f(a, 1)", lambda d: {"f": torch.softmax, "a": _square(d)}),
    _operator("sum(dim)", 1, "f(a, 1)", lambda d: {"f": torch.sum, "a": _square(d)}),
    _operator("cat of 2", 2, "f(l)", lambda d: {"f": torch.cat, "l": [_square(d), _square(d)]}),
    _operator("layer_norm", 3, "f(a, n, w, b)", _layer_norm),
    _operator("embedding", 2, "f(w, i)", _embedding),
    _operator("add_", 2, "f(b)", _in_place),
    _operator("add out=", 3, "f(a, b, out=o)", _out),
    _operator("clone", 1, "f()", lambda d: {"f": _square(d).clone}),
    _operator("index", 2, "a[i]", lambda d: {"a": _square(d), "i": torch.tensor([2, 0], device=d)}),
    _operator(
        "_foreach_add of 4",
        4,
        "f(l, 1.0)",
        lambda d: {"f": torch._foreach_add, "l": [_square(d) for _ in range(4)]},
        launches=4,
    ),
    _operator("mm with autograd", 2, "f(a, b)", _grad_mm, grad=True),
    # No goal: a device's backward runs on a thread of its own in every PyTorch, the CPU's on
    # the caller's; the row shows what that hand-over costs.
    _operator(
        "mm forward + backward",
        2,
        "grad(f(a, b), a, g)",
        _grad_mm_backward,
        goal=Goal(),
        grad=True,
        backward=True,
        launches=2,
    ),
    _operator(
        "empty(device=)", 0, "f(s, device=d)", lambda d: {"f": torch.empty, "s": (4, 4), "d": d}
    ),
    _operator("view", 1, "f(16)", lambda d: {"f": _square(d).view}, goal=Goal(VIEW_NS)),
]


def _mlp(device: torch.device) -> torch.nn.Sequential:
    return torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
    ).to(device)


def _adamw(foreach: bool | None) -> Callable[[torch.device], Statement]:
    def build(device: torch.device) -> Statement:
        parameters = list(_mlp(device).parameters())
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, 0.01)
        # So small a rate that thousands of steps leave the values where they are.
        optimizer = torch.optim.AdamW(parameters, lr=1e-7, foreach=foreach)
        return Statement("f()", {"f": optimizer.step})

    return build


def _training_step(device: torch.device) -> Statement:
    model = _mlp(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-7, foreach=True)
    x = torch.randn(32, 64, device=device)
    y = torch.randint(10, (32,), device=device)
    loss = torch.nn.functional.cross_entropy
    source = "optimizer.zero_grad(); loss(model(x), y).backward(); optimizer.step()"
    return Statement(source, {"model": model, "optimizer": optimizer, "loss": loss, "x": x, "y": y})


_STEP = Goal(ratio=STEP_RATIO)

STEPS: list[Case] = [
    # PyTorch's default is foreach on accelerators and a loop on the CPU, so both are shown.
    Case("AdamW step, default", 4, _STEP, _adamw(None), grad=True, launches=60),
    Case("AdamW step, foreach", 4, _STEP, _adamw(True), grad=True, launches=60),
    Case("MLP training step", 4, _STEP, _training_step, grad=True, backward=True, launches=60),
]

CASES: dict[str, Case] = {case.name: case for case in (*OPERATORS, *STEPS)}
