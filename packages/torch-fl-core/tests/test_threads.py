"""Owns: tests that threads do not disturb each other: values, memory, errors, and reports."""

from __future__ import annotations

import queue
import random
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
from children import output_of_child
from memory_level import assert_back_at, settled
from parity import uneven
from torch import nn
from torch.nn import functional

import torch_fl  # noqa: F401  (makes the device)
from torch_fl import routing

if TYPE_CHECKING:
    from collections.abc import Callable

flagos = torch.flagos
D = "flagos"


def _together(count: int, work: Callable[[int], None]) -> None:
    """Run work(0) ... work(count - 1) at the same time; the first error of any is raised."""
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def run(index: int) -> None:
        try:
            start.wait(60)
            work(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class Network(nn.Module):
    """A bit of everything that is hot: matrices, convolution, norms, attention, indexing."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.LayerNorm(16)
        self.projection = nn.Linear(16, 48)
        self.embedding = nn.Embedding(11, 16)
        self.out = nn.Linear(16, 5)
        for parameter in self.parameters():
            parameter.data = uneven(parameter.shape) / 2

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.convolution(x)).flatten(2)
        y = self.norm(y + self.embedding(ids))
        q, k, v = self.projection(y).chunk(3, -1)
        y = functional.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
        y = torch.cat([y, y.flip(1)], 1)[:, ::2]
        y[:, 0] = y[:, 1] * 2
        return self.out(y.mean(1)).log_softmax(-1)


def _inputs(index: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = (uneven((3, 2, 4, 4)) * (index + 1)).to(D)
    return x, torch.tensor([[index, 1, 2, 10 - index]] * 3, device=D)


def _step(net: Network, index: int) -> list[torch.Tensor]:
    """Loss and gradients of all parameters, as they are for this index every time."""
    output = net(*_inputs(index))
    loss = functional.nll_loss(output, torch.full((3,), index % 5, device=D))
    return [loss.detach(), *torch.autograd.grad(loss, list(net.parameters()))]


def _hammer(seconds: float, threads: int = 8) -> int:
    """Forward and backward in all threads over shared weights; the number of steps done."""
    net = Network().to(D)
    expected = [[x.cpu() for x in _step(net, index)] for index in range(threads)]
    # Kernels' sums depend on it, and a new thread may have another number than this one: the last
    # one that any thread set, as a DataLoader's pinning thread does.
    kernel_threads = torch.get_num_threads()
    assert not torch.equal(expected[0][1], expected[1][1])
    end = time.monotonic() + seconds
    steps = [0] * threads

    def work(index: int) -> None:
        torch.set_num_threads(kernel_threads)
        canary = torch.full((1000 + index,), float(index), device=D)
        while time.monotonic() < end or steps[index] < 3:
            fresh = torch.full((300 + index,), -float(index), device=D)
            for ours, theirs in zip(_step(net, index), expected[index], strict=True):
                assert torch.equal(ours.cpu(), theirs), "a value differs from the one-thread run"
            assert torch.equal(canary.cpu(), torch.full((1000 + index,), float(index)))
            assert torch.equal(fresh.cpu(), torch.full((300 + index,), -float(index)))
            steps[index] += 1

    _together(threads, work)
    return sum(steps)


def test_shared_weights_forward_and_backward() -> None:
    before = settled()
    assert _hammer(4) > 8 * 3
    assert_back_at(before)


@pytest.mark.slow
def test_shared_weights_for_a_minute() -> None:
    before = settled()
    assert _hammer(60) > 100
    assert_back_at(before)


def test_gradients_accumulate_from_all_threads() -> None:
    """Into one leaf; of integers, so that the order cannot matter."""
    weight = torch.zeros(50, device=D, requires_grad=True)

    def work(index: int) -> None:
        for _ in range(50):
            (weight * float(index + 1)).sum().backward()

    weight.grad = torch.zeros_like(weight)
    _together(4, work)
    assert weight.grad.unique().tolist() == [50.0 * (1 + 2 + 3 + 4)]


def _churn(seconds: float) -> None:
    """Tensors made in one thread, read and freed in another."""
    before = settled()
    mailboxes: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(4)]
    end = time.monotonic() + seconds

    def work(index: int) -> None:
        rng = random.Random(index)
        count = 0
        while time.monotonic() < end or count < 100:
            count += 1
            size = int(2 ** rng.uniform(0, 17))
            value = float(rng.randrange(1000))
            tensor = torch.full((size,), value, device=D)
            view = tensor[size // 2 :]
            if rng.random() < 0.1:
                tensor.untyped_storage().resize_(0)
                tensor.untyped_storage().resize_(size * 4)
                tensor.fill_(value)
            if rng.random() < 0.02:
                flagos.empty_cache()
            mailboxes[rng.randrange(4)].put((view if rng.random() < 0.5 else tensor, value))
            del tensor, view
            while not mailboxes[index].empty():
                theirs, expected = mailboxes[index].get()
                low, high = theirs.aminmax()
                assert float(low) == float(high) == expected, "memory was given out twice"

    _together(4, work)
    mailboxes.clear()
    assert_back_at(before)


def test_memory_freed_in_other_threads() -> None:
    _churn(2)


@pytest.mark.slow
def test_memory_freed_in_other_threads_for_long() -> None:
    _churn(20)


def test_reports_switched_on_and_off_while_others_call() -> None:
    """No call is lost from a report that spans them all, and values stay right."""
    stop = threading.Event()
    a, b = uneven((8, 8)).to(D), uneven((8, 8)).to(D)
    expected = torch.addmm(a.cpu(), a.cpu(), b.cpu()).sin()
    calls = [0] * 4

    def work(index: int) -> None:
        if index == 4:
            end = time.monotonic() + 2
            while time.monotonic() < end:
                with routing.report() as report:
                    torch.add(a, b)
                assert any(row.operator == "aten::add.Tensor" for row in report.rows)
            stop.set()
            return
        while not stop.is_set():
            assert torch.equal(torch.addmm(a, a, b).sin().cpu(), expected)
            torch._foreach_add([a, b], 1.0)
            calls[index] += 1

    _together(5, work)  # really off in between
    calls[:] = [0] * 4
    stop.clear()
    with routing.report() as outer:
        _together(5, work)
    counted = {row.operator: row.calls for row in outer.rows}
    assert counted["aten::addmm"] == counted["aten::sin"] == sum(calls)
    assert counted["aten::_foreach_add.Scalar"] == sum(calls)
    assert all(row.device_time_s >= 0 for row in outer.rows)


def test_errors_stay_in_their_thread() -> None:
    def work(index: int) -> None:
        for _ in range(30):
            with pytest.raises(RuntimeError, match=f"size of tensor a \\({index + 2}\\)"):
                torch.ones(index + 2, device=D) + torch.ones(17, device=D)
            with pytest.raises(IndexError):
                torch.ones(3, device=D)[index + 3]
            assert torch.full((4,), float(index), device=D).sum().item() == 4 * index

    _together(6, work)


def test_modes_are_per_thread() -> None:
    weight = torch.ones(3, 3, device=D, requires_grad=True)

    def work(index: int) -> None:
        for _ in range(50):
            with torch.set_grad_enabled(index % 2 == 0), torch.autocast(D, enabled=index < 2):
                y = weight @ weight
                assert y.requires_grad is (index % 2 == 0)
                assert (y.dtype == torch.float32) is (index >= 2)
                stream = flagos.Stream()
                with flagos.stream(stream):
                    assert flagos.current_stream() == stream

    _together(4, work)


def test_random_numbers_of_several_threads() -> None:
    """A draw is atomic: together the threads draw what one alone would, in another order."""
    torch.manual_seed(8)
    expected = {tuple(torch.rand(40, device=D).tolist()) for _ in range(80)}
    torch.manual_seed(8)
    drawn: list[tuple[float, ...]] = []

    def work(index: int) -> None:
        drawn.extend(tuple(torch.rand(40, device=D).tolist()) for _ in range(20))

    _together(4, work)
    assert set(drawn) == expected

    def alone(index: int) -> None:
        ours, theirs = torch.Generator(D).manual_seed(index), torch.Generator().manual_seed(index)
        for _ in range(20):
            assert torch.equal(torch.randn(30, device=D, generator=ours).cpu(),
                               torch.randn(30, generator=theirs))  # fmt: skip

    _together(4, alone)


def test_each_thread_has_its_own_current_device() -> None:
    output_of_child(
        """
        import threading, torch, torch_fl
        errors = []
        weights = [torch.ones(8, 8, device=f"flagos:{i}", requires_grad=True) for i in (0, 1)]
        def work(index):
            try:
                assert torch.flagos.current_device() == 0
                torch.flagos.set_device(index % 2)
                for _ in range(100):
                    x = torch.full((8, 8), float(index), device="flagos")
                    assert x.device.index == index % 2
                    y = x @ weights[index % 2]
                    (g,) = torch.autograd.grad(y.sum(), [weights[index % 2]])
                    assert g.device.index == index % 2
                    assert g.unique().tolist() == [8.0 * index]
                    other = y.detach().to(f"flagos:{1 - index % 2}")
                    assert other.device.index == 1 - index % 2
                    assert torch.flagos.current_device() == index % 2
            except BaseException as error:
                errors.append(error)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        if errors:
            raise errors[0]
        assert torch.flagos.current_device() == 0
        """,
        FLAGOS_HOST_DEVICES="2",
    )


def test_first_use_in_many_threads_at_once() -> None:
    output_of_child(
        """
        import threading
        errors, start = [], threading.Barrier(8)
        def work(index):
            try:
                start.wait()
                import torch, torch_fl
                x = torch.full((3,), float(index), device="flagos", requires_grad=True)
                (x * x).sum().backward()
                assert x.grad.tolist() == [2.0 * index] * 3
            except BaseException as error:
                errors.append(error)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        if errors:
            raise errors[0]
        """
    )
