"""Owns: what must hold after an allocation has failed, and trying that at each one in turn."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from memory_level import settled
from small_training import Training

from torch_fl.testing import faults

WAIT_S = 5.0
MESSAGE = re.compile(
    r"flagos:(\d+) out of memory\. Tried to allocate (\d+\.\d\d) MiB\. It has a total capacity of "
    r"\d+\.\d\d MiB of which \d+\.\d\d MiB is free; \d+\.\d\d MiB is allocated by tensors and "
    r"\d+\.\d\d MiB is reserved but unused\."
)


def assert_right(error: BaseException, device: int = 0) -> None:
    """`error` is what PyTorch raises when a device's memory runs out, with flagos' name."""
    assert type(error) is torch.OutOfMemoryError, f"{type(error).__name__}: {error}"
    found = MESSAGE.search(str(error))
    assert found is not None, str(error)
    assert int(found[1]) == device, str(error)
    assert not re.search(r"\bcpu\b", str(error), re.IGNORECASE), str(error)


def fails_at(number: int, work: Callable[[], Any], device: int = 0) -> bool:
    """Whether `work` failed as its allocation `number` on `device` did; False if it makes fewer.

    The error and all that it keeps alive are gone when this returns.
    """
    with faults.failing_allocation(number, device=device) as allocations:
        try:
            work()
        except torch.OutOfMemoryError as error:
            assert_right(error, device)
            failed = True
        else:
            failed = False
    assert allocations.failed == (1 if failed else 0), f"allocation {number} failed in silence"
    return failed


def wait_for_level(level: int, what: str, device: int = 0) -> None:
    """Exactly `level` bytes are allocated, now or in a moment."""
    end = time.monotonic() + WAIT_S
    while torch.flagos.memory_allocated(device) != level and time.monotonic() < end:
        gc.collect()
        time.sleep(0.002)
    allocated = torch.flagos.memory_allocated(device)
    assert allocated == level, f"{what}: {allocated - level:+} bytes are left"


def circumstances() -> tuple[object, ...]:
    """What a thread carries from call to call: device, stream, modes."""
    return (
        torch.flagos.current_device(),
        torch.flagos.current_stream(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("flagos"),
        torch.get_autocast_dtype("flagos"),
        torch.is_autocast_cache_enabled(),
        torch._C._is_multithreading_enabled(),
        torch._C._len_torch_dispatch_stack(),
        torch._C._len_torch_function_stack(),
        str(torch._C._dispatch_tls_local_exclude_set()),
        str(torch._C._dispatch_tls_local_include_set()),
    )


def assert_host_memory_is_the_hosts(level: int) -> None:
    """The thread is inside no kernel: what the CPU allocates is not counted on the device."""
    kept = [torch.ones(1000), torch.ones(1000) + 1]
    assert torch.flagos.memory_allocated() == level, "CPU tensors are taken from the device"
    del kept


def sweep(work: Callable[[], Any], numbers: Iterable[int] | None = None, device: int = 0) -> int:
    """Lets each allocation of `work` fail in turn; then memory is at its level and `work` runs.

    Args:
        work: makes its arguments itself or leaves them as they are.
        numbers: which allocations fail; all by default.

    Returns: how many allocations failed.
    """
    with faults.counted_allocations(device) as allocations:
        work()
    settled()
    level, before = torch.flagos.memory_allocated(device), circumstances()
    count = 0
    for number in numbers or range(1, allocations.seen + 1):
        if not fails_at(number, work, device):
            break
        count += 1
        wait_for_level(level, f"after allocation {number}", device)
        assert circumstances() == before, f"after allocation {number}"
    work()
    wait_for_level(level, "after the call that succeeded", device)
    return count


def sweep_steps(training: Training, *, first: bool, stride: int = 1, offset: int = 0) -> int:
    """Lets allocations of one training step fail in turn, and after each one does that step.

    Args:
        first: it is the first step of all, which makes the optimizer's state; otherwise the third.
        stride, offset: of every `stride` allocations one is tried, beginning at 1 + `offset`.

    Returns: how many failed.
    """
    if not first:
        training.step()
        training.step()
    start = training.keep()

    def back() -> None:
        if first:
            training.forget()
        training.restore(start)

    training.step()
    end = training.keep()
    back()
    with faults.counted_allocations() as allocations:
        training.step()
    assert not training.differences(end), "two undisturbed steps differ"
    back()
    level, before = settled(), circumstances()
    count = 0
    for number in range(1 + offset, allocations.seen + 1, stride):
        where = f"allocation {number} of {allocations.seen}"
        assert fails_at(number, training.step), f"{where} was not made"
        count += 1
        back()
        wait_for_level(level, where)
        assert circumstances() == before, where
        assert_host_memory_is_the_hosts(level)
        training.step()
        assert not training.differences(end), f"the step after {where} differs"
        back()
    return count
