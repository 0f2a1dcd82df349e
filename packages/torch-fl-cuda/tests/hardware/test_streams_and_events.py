"""Owns: tests that streams and events of flagos and of torch.cuda are the same queues and marks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpu_busy import CYCLES, SHORT

SIZE = 1 << 20


@pytest.fixture(autouse=True)
def _idle() -> Any:
    """Kernels are loaded before a test and nothing is queued: loading one may wait for the GPU."""
    x = torch.ones(SIZE, device="flagos")
    y = torch.empty_like(x)
    y.copy_(x).fill_(2).add_(x)
    torch.cuda._sleep(1)
    torch.cuda.synchronize()
    yield
    torch.cuda.synchronize()


def _as_flagos(stream: torch.cuda.Stream) -> torch.flagos.Stream:
    """The same queue under flagos' name."""
    with torch.cuda.stream(stream):
        return torch.flagos.current_stream()


def _as_cuda(stream: torch.flagos.Stream) -> torch.cuda.Stream:
    with torch.flagos.stream(stream):
        return torch.cuda.current_stream()


def _ids() -> set[int]:
    """The current stream, asked for in all ways."""
    return {
        torch.flagos.current_stream().stream_id,
        torch.cuda.current_stream().stream_id,
        torch.accelerator.current_stream().stream_id,
    }


# -- which stream is current


def test_the_default_streams_are_one() -> None:
    ours, theirs = torch.flagos.default_stream(), torch.cuda.default_stream()
    assert (ours.stream_id, ours.device_index) == (theirs.stream_id, theirs.device_index)
    assert ours.cuda_stream == theirs.cuda_stream == 0
    assert _ids() == {theirs.stream_id}


def test_the_current_stream_is_the_same_whoever_sets_it() -> None:
    default = torch.cuda.default_stream().stream_id
    ours, theirs = torch.flagos.Stream(), torch.cuda.Stream()
    with torch.flagos.stream(ours):
        assert _ids() == {ours.stream_id}
        assert torch.cuda.current_stream().cuda_stream == ours.cuda_stream != 0
        with torch.cuda.stream(theirs):
            assert _ids() == {theirs.stream_id}
            assert torch.flagos.current_stream().cuda_stream == theirs.cuda_stream
        assert _ids() == {ours.stream_id}
    assert _ids() == {default}
    torch.accelerator.set_stream(ours)
    assert _ids() == {ours.stream_id}
    torch.cuda.set_stream(torch.cuda.default_stream())
    assert _ids() == {default}


def test_a_stream_of_cudas_name_is_taken_and_one_of_flagos_refused_by_cuda() -> None:
    before = _ids()
    theirs = torch.cuda.Stream()
    with torch.flagos.stream(theirs):
        assert torch.cuda.current_stream() == theirs
    with (
        pytest.raises((ValueError, RuntimeError), match=r"(?i)cuda"),
        torch.cuda.stream(torch.flagos.Stream()),
    ):
        pass
    assert _ids() == before


def test_priorities_are_cudas() -> None:
    assert torch.flagos.Stream.priority_range() == torch.cuda.Stream.priority_range()
    lowest, highest = torch.cuda.Stream.priority_range()
    assert lowest > highest
    for priority in (lowest, highest, highest - 100):
        ours = torch.flagos.Stream(priority=priority)
        assert ours.priority == _as_cuda(ours).priority == max(priority, highest)


def test_pools_of_streams_are_one() -> None:
    """CUDA's pool has 32 streams of a priority, given out in turn to whoever asks."""
    turns = [(torch.flagos, torch.cuda)[turn % 2].Stream().cuda_stream for turn in range(32)]
    assert len(set(turns)) == 32
    assert torch.flagos.Stream().cuda_stream == turns[0]


# -- one order of work


@pytest.mark.parametrize("waits", [True, False], ids=["waiting", "without waiting"])
@pytest.mark.parametrize("giver", ["cuda", "flagos"])
def test_work_given_under_one_name_is_waited_for_under_the_other(giver: str, waits: bool) -> None:
    taker, same = ("flagos", _as_flagos) if giver == "cuda" else ("cuda", _as_cuda)
    give, take = torch.get_device_module(giver), torch.get_device_module(taker)
    x, y = torch.zeros(SIZE, device=taker), torch.empty(SIZE, device=taker)
    side = give.Stream()
    side.wait_stream(give.current_stream())
    with give.stream(side):
        give._sleep(CYCLES)
        x.fill_(1)
    if waits:
        take.current_stream().wait_stream(same(side))
    y.copy_(x)
    assert not side.query(), "the side stream was not busy for long enough"
    assert y.unique().tolist() == [float(waits)]


def test_waiting_in_python_waits_for_the_others_work() -> None:
    for give, wait in (
        (torch.cuda._sleep, torch.flagos.synchronize),
        (torch.flagos._sleep, torch.cuda.synchronize),
        (torch.cuda._sleep, torch.accelerator.synchronize),
        (torch.cuda._sleep, torch.flagos.current_stream().synchronize),
        (torch.flagos._sleep, torch.cuda.current_stream().synchronize),
    ):
        give(SHORT)
        queues = torch.flagos.current_stream(), torch.cuda.current_stream()
        assert [queue.query() for queue in queues] == [False, False]
        wait()
        assert [queue.query() for queue in queues] == [True, True]


def test_backward_runs_on_the_stream_of_forward() -> None:
    seen: list[set[int]] = []

    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            seen.append(_ids())
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            seen.append(_ids())
            torch.cuda._sleep(SHORT)
            return grad * 2

    x = torch.ones(SIZE, device="flagos", requires_grad=True)
    for module in (torch.flagos, torch.cuda):
        seen.clear()
        x.grad = None
        side = module.Stream()
        side.wait_stream(module.current_stream())
        with module.stream(side):
            loss = Look.apply(x).sum()
        loss.backward()
        del loss
        assert seen == [{side.stream_id}] * 2
        assert x.grad.unique().tolist() == [2], "the caller's stream waits for the gradients"


# -- events


def test_an_event_of_either_name_marks_the_others_work() -> None:
    for module, other in ((torch.flagos, torch.cuda), (torch.cuda, torch.flagos)):
        side = other.Stream()
        with other.stream(side):
            before, after = module.Event(), module.Event()
            before.record()  # on the current stream, which the other name has set
            other._sleep(SHORT)
            after.record()
        before.synchronize()
        assert (before.query(), after.query()) == (True, False)
        after.synchronize()
        assert after.query()


def test_events_of_both_names_measure_the_same_time() -> None:
    ours = [torch.flagos.Event(enable_timing=True) for _ in range(2)]
    theirs = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    ours[0].record()
    theirs[0].record()
    torch.cuda._sleep(CYCLES)
    theirs[1].record()
    ours[1].record()
    torch.flagos.synchronize()
    inner, outer = theirs[0].elapsed_time(theirs[1]), ours[0].elapsed_time(ours[1])
    assert inner > 500
    assert inner <= outer + 0.01
    assert outer <= 2 * inner + 1000  # other processes may have their turns in between


ACROSS = """
    import torch_fl
    x = torch.zeros(1 << 20, device="flagos")
    y = torch.ones_like(x)
    y.copy_(x)
    torch.cuda._sleep(1)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    event = torch.cuda.Event()
    with torch.cuda.stream(side):
        torch.cuda._sleep({cycles})
        x.fill_(1)
        {record}
    {wait}
    y.copy_(x)
    busy = not side.query()
    print(json.dumps([busy, y.unique().tolist()]))
"""


def _across(record: str, wait: str) -> str:
    return ACROSS.format(cycles=CYCLES, record=record, wait=wait)


def test_a_flagos_stream_waits_for_an_event_of_cuda(said: Any) -> None:
    wait = "torch.flagos.current_stream().wait_event(event)"
    assert said(_across("event.record()", "")) == [True, [0.0]]
    assert said(_across("event.record()", wait)) == [True, [1.0]]


def test_a_flagos_stream_records_an_event_of_cuda(said: Any) -> None:
    record = "torch.flagos.current_stream().record_event(event)"
    wait = "torch.cuda.current_stream().wait_event(event)"
    assert said(_across(record, wait)) == [True, [1.0]]


# -- streams of others


def test_a_stream_of_another_library_is_used_as_it_is() -> None:
    cupy = pytest.importorskip("cupy")
    theirs = cupy.cuda.Stream(non_blocking=True)
    x = torch.zeros(SIZE, device="flagos")
    torch.cuda.synchronize()
    ours = torch.flagos.ExternalStream(theirs.ptr)
    with torch.flagos.stream(ours):
        assert torch.cuda.current_stream().cuda_stream == theirs.ptr
        assert torch.flagos.current_stream() == ours
        torch.cuda._sleep(CYCLES)
        x.fill_(1)
    assert not theirs.done
    assert torch.cuda.current_stream().query(), "its work is in its own queue"
    theirs.synchronize()
    assert ours.query()
    assert x.unique().tolist() == [1]
    assert torch.flagos.get_stream_from_external(theirs.ptr) == ours
