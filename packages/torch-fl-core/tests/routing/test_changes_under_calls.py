"""Owns: the test that routes can change while other threads call: no wrong value, no crash."""

from __future__ import annotations

import itertools
import threading
import time

import pytest
import torch

from torch_fl import routing

THREADS = 4
CHAINS = ("boxing", "cpu", "composite", "mine, boxing", "mine, cpu", None)
OPERATORS = ("add.Tensor", "mm", "relu", "mul.Tensor", "sum.dim_IntList", "_foreach_add.Scalar")


def refusing(*arguments: object, **keywords: object) -> torch.Tensor:
    return NotImplemented


class Caller(threading.Thread):
    """Calls until told to stop, and compares every value with its own canary."""

    def __init__(self, canary: int, stop: threading.Event) -> None:
        super().__init__()
        self.canary, self.stop_event = float(canary), stop
        self.calls = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stop_event.is_set():
                self.once()
        except BaseException as error:
            self.failure = error

    def once(self) -> None:
        a = torch.full((4, 4), self.canary, device="flagos", requires_grad=True)
        b = torch.relu(a @ a) * a + a
        listed = torch._foreach_add([b.detach(), a.detach()], 1.0)
        b.sum(1).sum().backward()
        c = self.canary
        assert b.tolist() == [[4 * c**3 + c] * 4] * 4
        assert listed[0].tolist() == [[4 * c**3 + c + 1] * 4] * 4
        assert listed[1].tolist() == [[c + 1] * 4] * 4
        assert a.grad is not None
        assert a.grad.tolist() == [[12 * c**2 + 1] * 4] * 4
        self.calls += 1


def change_for(seconds: float) -> tuple[int, list[Caller]]:
    routing.register("mine", dict.fromkeys(OPERATORS, refusing))
    stop = threading.Event()
    callers = [Caller(number + 2, stop) for number in range(THREADS)]
    for caller in callers:
        caller.start()
    changes = 0
    end = time.monotonic() + seconds
    try:
        for operator, chain in itertools.cycle(itertools.product(OPERATORS, CHAINS)):
            if time.monotonic() > end or any(caller.failure for caller in callers):
                break
            routing.set(operator, chain)
            with routing.report(), routing.use({"relu": "cpu"}):
                torch.relu(torch.ones(2, device="flagos"))
            changes += 1
    finally:
        stop.set()
        for caller in callers:
            caller.join()
        routing.reset()
    return changes, callers


def check(seconds: float) -> None:
    changes, callers = change_for(seconds)
    for caller in callers:
        if caller.failure:
            raise caller.failure
    assert changes > seconds
    assert all(caller.calls > seconds for caller in callers)


def test_routes_change_under_calls() -> None:
    check(4)


@pytest.mark.slow
def test_routes_change_under_calls_for_a_minute() -> None:
    check(60)
