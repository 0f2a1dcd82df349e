"""Owns: where backward() runs on host memory, and the entry point of the engine."""

from __future__ import annotations

import inspect
import threading

import torch
from torch.autograd import graph

import torch_fl  # noqa: F401


def test_entry_point() -> None:
    """What _compat/engine.py relies on: one function, under two names, with the roots first."""
    assert torch.autograd._engine_run_backward is graph._engine_run_backward
    original = inspect.unwrap(graph._engine_run_backward)
    assert next(iter(inspect.signature(original).parameters)) == "t_outputs"
    assert "_engine_run_backward(" in inspect.getsource(torch.autograd.backward)


def backward_thread(requires_grad_on: str) -> int:
    """The thread in which a hook of a graph on `requires_grad_on` runs."""
    seen: list[int] = []
    x = torch.ones(3, device=requires_grad_on, requires_grad=True)
    y = x * 2
    y.register_hook(lambda _: seen.append(threading.get_ident()))
    y.sum().backward()
    return seen[0]


def test_backward_runs_in_the_calling_thread() -> None:
    assert backward_thread("flagos") == threading.get_ident()
    assert backward_thread("cpu") == threading.get_ident()


def test_each_thread_runs_its_own_backward() -> None:
    seen: list[tuple[int, int]] = []
    start = threading.Barrier(4)  # all alive at once: no identity is used twice

    def work() -> None:
        start.wait()
        seen.append((threading.get_ident(), backward_thread("flagos")))
        start.wait()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 4
    assert all(caller == runner for caller, runner in seen)


def test_setting_is_restored() -> None:
    for enabled in (True, False):
        with torch.autograd.set_multithreading_enabled(enabled):
            backward_thread("flagos")
            assert torch._C._is_multithreading_enabled() is enabled
            x = torch.ones(1, device="flagos", requires_grad=True)
            y = x * 1
            y.register_hook(lambda _: 1 / 0)
            try:
                y.backward()
            except ZeroDivisionError:
                assert torch._C._is_multithreading_enabled() is enabled
            else:
                raise AssertionError("the hook's error was lost")


def test_current_device_in_backward() -> None:
    """A node's device is current while its backward runs, as with worker threads."""
    seen: list[int] = []

    class Watch(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
            seen.append(torch.accelerator.current_device_index())
            return grad

    last = torch.accelerator.device_count() - 1
    x = torch.ones(2, device=f"flagos:{last}", requires_grad=True)
    Watch.apply(x).sum().backward()
    assert seen == [last]
    assert torch.accelerator.current_device_index() == 0
