"""Owns: tests that a backward() that fails keeps nothing: the memory is there for the next try."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from memory_level import settled
from out_of_memory import wait_for_level
from torch.utils._python_dispatch import TorchDispatchMode

import torch_fl  # noqa: F401  (makes the device)

D = "flagos"


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        raise ValueError("on purpose")


def _fail(device: str, size: int = 1000) -> None:
    """A graph whose older branches wait, with gradients, when the newer one fails."""
    x = torch.ones(size, device=device, requires_grad=True)
    waiting = [(x * 2).exp() for _ in range(3)]
    total = sum(waiting, Broken.apply(x))
    with pytest.raises(ValueError, match="on purpose"):
        total.sum().backward()


def test_gradients_that_waited_are_gone() -> None:
    level = settled()
    for _ in range(3):
        _fail(D)
        wait_for_level(level, "after a failed backward")


def test_in_a_thread_that_lives_on() -> None:
    level = settled()
    failed, end = threading.Event(), threading.Event()

    def work() -> None:
        _fail(D)
        failed.set()
        end.wait()

    thread = threading.Thread(target=work)
    thread.start()
    failed.wait()
    try:
        wait_for_level(level, "while the thread lives")
    finally:
        end.set()
        thread.join()


def test_inside_another_backward() -> None:
    level = settled()

    class Nested(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                _fail(D)
            return grad * 3

    x = torch.ones(5, device=D, requires_grad=True)
    older = x * 2
    (older + Nested.apply(x)).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [5.0] * 5
    del x, older
    wait_for_level(level, "after the outer backward")


def test_under_modes() -> None:
    """What throws the gradients away is seen by no mode, and needs none to be off."""
    seen: list[str] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    level = settled()
    x = torch.ones(5, device=D, requires_grad=True)
    y = (x * 2).exp() + Broken.apply(x)
    with Watch(), pytest.raises(ValueError, match="on purpose"):
        y.backward(torch.ones(5, device=D))
    assert seen == ["aten.ones.default"]
    with torch.inference_mode(), torch.inference_mode(False):
        _fail(D)
    with torch.autocast("flagos"), torch.autograd.graph.save_on_cpu():
        _fail(D)
    del x, y
    wait_for_level(level, "after modes")


def test_the_error_and_the_modes_are_the_failures_own() -> None:
    for enabled in (True, False):
        with torch.autograd.set_multithreading_enabled(enabled), torch.no_grad():
            with torch.enable_grad():
                _fail(D)
                _fail("cpu")
            assert torch._C._is_multithreading_enabled() is enabled
            assert not torch.is_grad_enabled()
    x = torch.ones(3, device=D, requires_grad=True)
    y = x.exp().sum()
    y.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()
