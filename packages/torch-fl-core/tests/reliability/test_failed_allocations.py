"""Owns: tests of torch_fl.testing.faults: which allocations count, and how they fail."""

from __future__ import annotations

import threading

import pytest
import torch
from memory_level import settled
from out_of_memory import assert_right

import torch_fl  # noqa: F401  (makes the device)
from torch_fl.testing import faults

D = "flagos"


def test_allocations_of_factories_and_kernels_count_and_empty_ones_do_not() -> None:
    x = torch.ones(3, 3, device=D)
    with faults.counted_allocations() as allocations:
        y = torch.empty(5, device=D)
        assert allocations.seen == 1
        z = x + x
        assert allocations.seen == 2
        x.add_(x)
        _ = x[1:].t()
        _ = torch.empty(0, device=D), torch.ones(2), torch.ones(2) + 1
        assert allocations.seen == 2
        y.resize_(100)
        assert allocations.seen == 3
        torch.add(x, x, out=z.resize_(0))  # memory that a kernel made, and has room
        assert allocations.seen == 3
    torch.ones(3, device=D)
    assert (allocations.seen, allocations.failed) == (3, 0)


def test_storages_that_kernels_resize_count() -> None:
    x = torch.ones(100, device=D)
    for out in (torch.empty(0, device=D), torch.ones(1, device=D) + 1):
        with faults.failing_allocation(1), pytest.raises(torch.OutOfMemoryError) as raised:
            torch.add(x, x, out=out.resize_(0))
        assert_right(raised.value)
        assert torch.add(x, x, out=out).tolist() == [2.0] * 100


def test_the_message_has_the_size() -> None:
    with (
        faults.failing_allocation(1),
        pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 1\.00 MiB"),
    ):
        torch.empty(1 << 18, device=D)


@pytest.mark.parametrize("times", [1, 2, None])
def test_as_many_fail_as_were_asked_for(times: int | None) -> None:
    outcomes = []
    with faults.failing_allocation(2, times=times) as allocations:
        for _ in range(5):
            try:
                torch.empty(1 << 18, device=D)
            except torch.OutOfMemoryError as error:
                assert_right(error)
                outcomes.append(False)
            else:
                outcomes.append(True)
    failed = 4 if times is None else times
    assert outcomes == ([True] + [False] * failed + [True] * 5)[:5]
    assert (allocations.seen, allocations.failed) == (5, failed)


def test_a_retry_that_succeeds_shows_in_nothing_but_the_cache() -> None:
    torch.empty(1 << 20, device=D)
    assert torch.flagos.memory_reserved() > torch.flagos.memory_allocated()
    with faults.failing_allocation(1, retry_succeeds=True) as allocations:
        x = torch.ones(10, device=D) + 1
    assert allocations.failed == 1
    assert x.tolist() == [2.0] * 10


def test_all_threads_count() -> None:
    with faults.failing_allocation(3, times=None) as allocations:
        errors = []

        def work() -> None:
            try:
                torch.empty(5, device=D)
            except torch.OutOfMemoryError as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (allocations.seen, allocations.failed, len(errors)) == (8, 6, 6)


def test_contexts_end_with_errors_and_do_not_nest() -> None:
    with pytest.raises(KeyError), faults.failing_allocation(1):
        raise KeyError
    with faults.counted_allocations(), pytest.raises(RuntimeError, match="already made to fail"):  # noqa: SIM117
        with faults.failing_allocation(1):
            pass
    for wrong in ({"number": 0}, {"number": 1, "times": 0}, {"number": 1, "device": "cpu"}):
        with pytest.raises(ValueError), faults.failing_allocation(**wrong):  # type: ignore[arg-type]  # noqa: PT011
            pass
    with pytest.raises(RuntimeError), faults.failing_allocation(1, device="flagos:99"):
        pass
    assert torch.ones(2, device=D).sum().item() == 2


def test_counting_leaves_memory_alone() -> None:
    level = settled()
    with faults.counted_allocations():
        kept = torch.ones(1000, device=D)
        assert torch.flagos.memory_allocated() > level
    del kept
    assert torch.flagos.memory_allocated() == level
