"""Owns: tests of streams and events: what is current, order, times, and the types they are."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from children import output_of_child

import torch_fl  # noqa: F401  (makes the device)

flagos = torch.flagos
CUDA_STREAM = {"stream_id": 0, "device_index": 0, "device_type": 1}


def test_a_thread_starts_on_the_default_stream() -> None:
    seen = []

    def work() -> None:
        seen.extend([flagos.current_stream(), flagos.default_stream()])

    with flagos.stream(flagos.Stream()):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(seen) == 2
    assert seen[0] == seen[1]


def test_streams_are_those_of_pytorch() -> None:
    ours, theirs = flagos.current_stream(), torch.accelerator.current_stream()
    assert isinstance(ours, flagos.Stream)
    assert isinstance(ours, torch.Stream)
    assert ours == theirs
    assert theirs == ours
    assert (ours != theirs) is False
    assert hash(ours) == hash(theirs)
    assert ours.device == torch.device("flagos", flagos.current_device())
    assert ours != flagos.Stream()
    assert (ours == 0) is False
    assert (ours == None) is False  # noqa: E711
    assert repr(ours) == f"<torch.flagos.Stream device=flagos:0 stream_id={ours.stream_id:#x}>"


def test_new_streams_are_not_the_default_one() -> None:
    streams = [flagos.Stream() for _ in range(4)]
    assert flagos.default_stream() not in streams
    assert len({stream.stream_id for stream in streams}) > 1
    assert all(flagos.Stream(priority=priority).query() for priority in (-100, 0, 100))


def test_a_stream_can_be_named_by_its_ids() -> None:
    first = flagos.Stream()
    ids = {
        "stream_id": first.stream_id,
        "device_index": first.device_index,
        "device_type": first.device_type,
    }
    assert flagos.Stream(**ids) == first
    with pytest.raises(ValueError, match="together"):
        flagos.Stream(stream_id=first.stream_id)
    with pytest.raises(ValueError, match="Expected a flagos device"):
        flagos.Stream(**CUDA_STREAM)


@pytest.mark.parametrize("enter", [flagos.stream, flagos.StreamContext, lambda stream: stream])
def test_context_makes_current_and_restores(enter) -> None:
    before, outer, inner = flagos.current_stream(), flagos.Stream(), torch.Stream("flagos")
    with enter(outer):
        assert flagos.current_stream() == outer
        with enter(inner):
            assert flagos.current_stream() == inner == torch.accelerator.current_stream()
        assert flagos.current_stream() == outer
    assert flagos.current_stream() == before
    with pytest.raises(KeyError), enter(outer):
        raise KeyError
    assert flagos.current_stream() == before


def test_context_without_a_stream_does_nothing_and_one_object_may_nest() -> None:
    before, stream, other = flagos.current_stream(), flagos.Stream(), flagos.Stream()
    with flagos.stream(None):
        assert flagos.current_stream() == before
    context = flagos.stream(stream)
    with context, flagos.stream(other), context:
        assert flagos.current_stream() == stream
    assert flagos.current_stream() == before


def test_set_stream_is_permanent() -> None:
    before, stream = flagos.current_stream(), flagos.Stream()
    flagos.set_stream(stream)
    try:
        assert flagos.current_stream() == stream
        flagos.set_stream(None)
        assert flagos.current_stream() == stream
    finally:
        flagos.set_stream(before)
    assert flagos.current_stream() == before


def test_a_stream_of_another_device_brings_its_device() -> None:
    output_of_child(
        """
        import torch, torch_fl
        flagos = torch.flagos
        for one in (1, "flagos:1", torch.device("flagos", 1)):
            assert flagos.Stream(one).device == torch.device("flagos", 1)
        there, here = flagos.Stream(1), flagos.Stream(0)
        before = [flagos.current_stream(0), flagos.current_stream(1)]
        with flagos.stream(here):
            with flagos.stream(there):
                assert flagos.current_device() == 1
                assert flagos.current_stream() == flagos.current_stream(1) == there
                assert flagos.current_stream(0) == here, "streams are per device"
                assert torch.ones(2, device="flagos").device.index == 1
            assert flagos.current_device() == 0 and flagos.current_stream(0) == here
            assert flagos.current_stream(1) == before[1]
        assert [flagos.current_stream(0), flagos.current_stream(1)] == before
        assert flagos.default_stream(1).device.index == 1
        with flagos.device(1):
            assert flagos.Stream().device.index == flagos.Stream(-1).device.index == 1
            assert flagos.current_stream().device.index == 1

        for event in (flagos.Event(), torch.Event("flagos")):
            event.record(here)
            there.wait_event(event)
            try:
                event.record(there)
            except RuntimeError as error:
                assert "device" in str(error)
            else:
                raise AssertionError("an event of flagos:0 was recorded on flagos:1")
        """,
        FLAGOS_HOST_DEVICES="2",
    )


def test_host_work_is_complete_when_the_call_returns() -> None:
    stream, other = flagos.Stream(), flagos.Stream()
    with flagos.stream(stream):
        a = torch.ones(256, 256, device="flagos") @ torch.ones(256, 256, device="flagos")
        done = stream.record_event()
    assert isinstance(done, flagos.Event)
    assert done.query()
    assert stream.query()
    other.wait_event(done)
    other.wait_stream(stream)
    a.record_stream(other)
    stream.synchronize()
    done.synchronize()
    with flagos.stream(other):
        assert a[0, 0].item() == 256


def test_events_give_the_time_in_milliseconds() -> None:
    start, end = flagos.Event(enable_timing=True), torch.Event("flagos", enable_timing=True)
    begin = time.perf_counter()
    start.record()
    time.sleep(0.05)
    end.record()
    end.synchronize()
    wall_ms = (time.perf_counter() - begin) * 1e3
    assert 50 <= start.elapsed_time(end) <= wall_ms
    assert end.elapsed_time(start) == pytest.approx(-start.elapsed_time(end))
    start.record()
    assert start.elapsed_time(end) <= 0, "recording again moves the mark"


def test_an_event_records_on_the_stream_it_is_given() -> None:
    stream = flagos.Stream()
    event = flagos.Event(True)
    assert stream.record_event(event) is event
    event.record(stream)
    event.wait(stream)
    event.wait()
    assert event.query()
    assert event.device == torch.device("flagos", 0)


def test_an_event_that_was_not_recorded_is_complete_but_has_no_time() -> None:
    never, recorded = flagos.Event(enable_timing=True), flagos.Event(enable_timing=True)
    recorded.record()
    assert never.query()
    never.synchronize()
    never.wait()
    for start, end in ((never, recorded), (recorded, never)):
        with pytest.raises(ValueError, match="recorded"):
            start.elapsed_time(end)


def test_an_event_without_timing_has_no_time() -> None:
    start, end = flagos.Event(), flagos.Event()
    start.record()
    end.record()
    with pytest.raises(ValueError, match="enable_timing"):
        start.elapsed_time(end)


def test_what_is_no_stream_or_event_is_refused_and_not_read_as_one() -> None:
    stream, event = flagos.Stream(), flagos.Event()
    for wrong in (
        lambda: stream.wait_event(stream),
        lambda: stream.wait_event(None),
        lambda: stream.wait_stream(event),
        lambda: stream.record_event(3),
        lambda: flagos.set_stream(3),
        lambda: flagos.stream(event).__enter__(),
    ):
        with pytest.raises(TypeError, match=r"Expected a torch\.(Stream|Event), but got"):
            wrong()
    with pytest.raises(ValueError, match="Expected a flagos device"):
        flagos.set_stream(torch.Stream(**CUDA_STREAM))


def test_events_are_those_of_pytorch() -> None:
    assert issubclass(flagos.Event, torch.Event)
    ours, theirs = flagos.Event(enable_timing=True), torch.Event("flagos", enable_timing=True)
    assert isinstance(ours, flagos.Event)
    assert isinstance(theirs, flagos.Event)
    assert not isinstance(torch.Event("cpu"), flagos.Event)
    assert not isinstance(flagos.Stream(), flagos.Event)
    assert torch.accelerator.current_stream().record_event(ours) is ours
    assert flagos.Stream().record_event(theirs) is theirs
    assert ours.elapsed_time(theirs) == -theirs.elapsed_time(ours) >= 0

    class Named(flagos.Event):
        pass

    assert type(Named()) is Named
    assert not isinstance(ours, Named)


def test_an_event_cannot_be_sent_to_another_process() -> None:
    event = flagos.Event(interprocess=True)
    with pytest.raises(NotImplementedError):
        event.ipc_handle()


def test_a_stream_says_its_priority() -> None:
    for priority, expected in ((0, 0), (-1, -1), (-5, -1), (5, 0)):
        for _ in range(3):
            stream = flagos.Stream(priority=priority)
            assert stream.priority == expected
            with stream:
                assert flagos.current_stream().priority == expected
    assert flagos.default_stream().priority == 0
    assert len({flagos.Stream(priority=-1) for _ in range(50)}) == 50
    assert isinstance(flagos.Stream().cuda_stream, int)
