"""Owns: tests of streams, events and generators whose maker is gone, or that belong elsewhere."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import torch
from torch.nn import functional

import torch_fl  # noqa: F401  (makes the device)

D = "flagos"
flagos: Any = torch.flagos  # type: ignore[attr-defined]
Result = TypeVar("Result")


def _in_a_thread_that_ends(work: Callable[[], Result]) -> Result:
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


def test_a_stream_outlives_its_thread_and_its_object() -> None:
    stream = _in_a_thread_that_ends(flagos.Stream)
    with stream:
        x = torch.ones(3, device=D)
    name = stream.stream_id
    event = stream.record_event()
    del stream
    gc.collect()
    event.synchronize()
    assert event.query()
    again = torch.Stream(
        stream_id=name, device_index=0, device_type=flagos.current_stream().device_type
    )
    x.record_stream(again)
    flagos.current_stream().wait_stream(again)
    assert x.sum().item() == 3


def test_the_current_stream_may_be_deleted() -> None:
    before = flagos.current_stream()
    flagos.set_stream(flagos.Stream())
    gc.collect()
    try:
        assert flagos.current_stream() != before
        assert (torch.ones(2, device=D) + 1).tolist() == [2.0, 2.0]
    finally:
        flagos.set_stream(before)


def test_a_thread_that_ends_leaves_its_stream_to_nobody() -> None:
    default = flagos.default_stream()
    assert _in_a_thread_that_ends(lambda: flagos.set_stream(flagos.Stream())) is None
    assert flagos.current_stream() == default
    assert _in_a_thread_that_ends(flagos.current_stream) == default


def test_an_event_recorded_by_a_thread_that_ended() -> None:
    def record() -> torch.Event:
        event = flagos.Event(enable_timing=True)
        with flagos.Stream():
            event.record()
        return event

    start, end = _in_a_thread_that_ends(record), _in_a_thread_that_ends(record)
    assert start.query()
    end.synchronize()
    end.wait()
    assert start.elapsed_time(end) >= 0


def test_one_event_recorded_by_many_threads() -> None:
    event, start = flagos.Event(enable_timing=True), flagos.Event(enable_timing=True)
    start.record()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(200):
                event.record()
                event.wait()
                assert event.query()
        except BaseException as error:
            errors.append(error)

    event.record()  # made now: two threads must not make it at once
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert start.elapsed_time(event) >= 0


def test_an_event_that_nobody_recorded() -> None:
    event, other = flagos.Event(enable_timing=True), flagos.Event(enable_timing=True)
    assert event.query()
    event.synchronize()
    event.wait()
    other.record()
    for pair in ((event, other), (other, event)):
        with pytest.raises((RuntimeError, ValueError), match="recorded"):
            pair[0].elapsed_time(pair[1])


@pytest.mark.parametrize(
    "use",
    [
        lambda g, d: torch.rand(3, device=d, generator=g),
        lambda g, d: torch.randn(3, device=d, generator=g),
        lambda g, d: torch.randint(5, (3,), device=d, generator=g),
        lambda g, d: torch.randperm(3, device=d, generator=g),
        lambda g, d: torch.ones(3, device=d).normal_(generator=g),
        lambda g, d: torch.ones(3, device=d).uniform_(generator=g),
        lambda g, d: torch.ones(3, device=d).bernoulli_(generator=g),
        lambda g, d: torch.ones(3, device=d).random_(generator=g),
        lambda g, d: torch.ones(3, device=d).exponential_(generator=g),
        lambda g, d: torch.bernoulli(torch.ones(3, device=d), generator=g),
        lambda g, d: torch.multinomial(torch.ones(3, device=d), 1, generator=g),
        lambda g, d: torch.poisson(torch.ones(3, device=d), generator=g),
        lambda g, d: torch.normal(torch.ones(3, device=d), 1.0, generator=g),
        lambda g, d: (
            functional.gumbel_softmax(torch.ones(3, device=d))
            if g is None
            else torch.nn.init.normal_(torch.ones(3, device=d), generator=g)
        ),
    ],
)
def test_a_generator_of_another_device_is_refused_and_stays_as_it_was(
    use: Callable[[torch.Generator | None, str], Any],
) -> None:
    for device, other in ((D, "cpu"), ("cpu", D)):
        generator = torch.Generator(other).manual_seed(3)
        state = generator.get_state()
        with pytest.raises(RuntimeError, match=rf"'{device}' device type.*'{other}'"):
            use(generator, device)
        assert generator.get_state().equal(state)
        mine = torch.Generator(device).manual_seed(3)
        use(mine, device)
        use(None, device)


def test_a_generator_outlives_its_thread_and_serves_many() -> None:
    generator = _in_a_thread_that_ends(lambda: torch.Generator(D).manual_seed(5))
    first = torch.rand(4, device=D, generator=generator)
    generator.manual_seed(5)
    rest = [
        _in_a_thread_that_ends(lambda: torch.rand(2, device=D, generator=generator).cpu())
        for _ in range(2)
    ]
    assert torch.cat(rest).equal(first.cpu())
