"""Owns: tests of a runtime that stands on another device of PyTorch: devices, starting, streams,
events, and targets that cannot be stood on. The target is the pretend device: two `hpu` devices.

Memory is in test_delegate_memory.py, random numbers in test_delegate_random.py, operators in
test_delegate_operators.py.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from children import output_of_child
from pretend_device.loading import activate
from pretend_device.processes import on_pretend_device

pretend = torch.ops.pretend


def _in_thread(ask):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(ask()))
    thread.start()
    thread.join()
    return answers[0]


# -- devices


@on_pretend_device
def test_devices_are_the_targets() -> None:
    flagos = torch.flagos
    assert flagos.is_available()
    assert flagos.device_count() == torch.accelerator.device_count() == 2
    assert torch.accelerator.current_accelerator() == torch.device("flagos")
    assert flagos.current_device() == pretend.current_device() == 0
    flagos.set_device(1)
    assert flagos.current_device() == pretend.current_device() == 1
    with flagos.device(0):
        assert pretend.current_device() == 0
    assert pretend.current_device() == 1
    pretend.set_device(0)
    assert flagos.current_device() == torch.accelerator.current_device_index() == 0
    pretend.set_device(1)
    assert torch.ones(2, device="flagos").device == torch.device("flagos:1")
    assert _in_thread(flagos.current_device) == 0, "the current device is the thread's own"
    with pytest.raises(RuntimeError, match=r"flagos.* 2: 2 devices available \(0 to 1\)"):
        flagos.set_device(2)


@on_pretend_device
def test_what_is_known_of_a_device_comes_from_the_target() -> None:
    flagos = torch.flagos
    flagos.init()
    assert flagos.get_device_name(1) == "hpu"
    assert flagos.get_device_properties(1).total_memory == pretend.memory(1)["total"]
    types = torch.accelerator.get_device_capability(1)["supported_dtypes"]
    assert torch.float32 in types
    assert torch.float64 not in types


@on_pretend_device
def test_synchronizing_is_done_by_the_target() -> None:
    torch.flagos.synchronize(1)
    torch.accelerator.synchronize()
    assert pretend.told("synchronize hpu:1") == 1
    assert pretend.told("synchronize hpu:0") == 1


# -- starting


@on_pretend_device
def test_asking_and_seeding_starts_nothing() -> None:
    flagos = torch.flagos
    assert flagos.device_count() == 2
    assert flagos.is_available()
    assert not flagos.is_initialized()
    for module in (flagos, torch.accelerator):
        assert module.memory_allocated(1) == 0
        assert not any(module.memory_stats(1).values())
        module.empty_cache()
        module.reset_peak_memory_stats(1)
        module.reset_accumulated_memory_stats(1)
    torch.manual_seed(3)
    flagos.manual_seed_all(4)
    assert not torch.ones(2).is_pinned()
    assert "flagos:1" in flagos.memory_summary(1)
    assert torch.ones(2, requires_grad=True).sum().backward() is None
    assert torch.flagos.is_bf16_supported()
    assert pretend.told("initialize") == 0
    assert pretend.contexts() == []

    x = torch.ones(2, device="flagos")
    assert x.sum().item() == 2
    assert pretend.told("initialize") == 1
    assert pretend.contexts() == [0]


@on_pretend_device
def test_the_target_is_started_once() -> None:
    def work() -> None:
        for size in range(1, 20):
            torch.empty(size, device="flagos:1").add_(1).resize_(50)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.flagos.init()
    torch.flagos.mem_get_info(0)
    torch.empty(3, device="hpu:0")
    assert pretend.told("initialize while initializing") == 0
    assert pretend.told("initialize") == 1


@on_pretend_device
def test_a_target_that_runs_already_is_not_started_again() -> None:
    x = torch.ones(3, device="hpu:1")
    assert torch.equal(x.to("flagos:1").cpu(), x.cpu())
    assert pretend.told("initialize") == 1


@on_pretend_device
def test_work_on_one_device_leaves_the_other_alone() -> None:
    # A context costs hundreds of megabytes on some devices.
    x = torch.ones(4, 4, device="flagos:1")
    y = (x @ x + 1).relu_()
    y.resize_(100)
    y.untyped_storage().resize_(4000)
    torch.randn(3, device="flagos:1").cpu()
    assert pretend.contexts() == [1]
    x.requires_grad_()
    (x @ x).sum().backward()
    assert pretend.contexts() == [1]
    with torch.accelerator.device_index(1), torch.flagos.device(1):
        torch.zeros(2, device="flagos")
    assert pretend.contexts() == [1]
    assert [pretend.has_primary_context("flagos", i) for i in (0, 1)] == [False, True]


@on_pretend_device
def test_fork_is_refused_after_the_start() -> None:
    torch.ones(2, device="flagos")
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            torch.ones(2, device="flagos")
        except RuntimeError as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.close(writer)
    refused = os.read(reader, 1000).decode()
    os.waitpid(pid, 0)
    assert "Cannot re-initialize flagos in forked subprocess" in refused


THEN_EXIT = """
from pretend_device import building, loading
loading.load(str(building.library()))
loading.activate()
import torch
weight = torch.ones(8, 8, device="flagos:1", requires_grad=True)
(weight @ weight).sum().backward()
"""


def test_a_process_may_end_right_after_backward() -> None:
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    output_of_child(THEN_EXIT, PYTHONPATH=path, TORCH_DEVICE_BACKEND_AUTOLOAD="0")


# -- streams


@on_pretend_device
def test_streams_are_the_targets_and_so_is_what_is_current() -> None:
    flagos = torch.flagos
    assert flagos.current_stream(1).stream_id == pretend.current_stream(1) == 0
    stream = flagos.Stream("flagos:1")
    assert stream.stream_id >= 100, "made by the target"
    with flagos.stream(stream):
        assert pretend.current_stream(1) == stream.stream_id
        assert pretend.current_stream(0) == 0
        assert flagos.current_stream() == torch.accelerator.current_stream() == stream
        default = flagos.default_stream(1)
        assert _in_thread(lambda: flagos.current_stream(1)) == default, "and so is its stream"
    assert pretend.current_stream(1) == 0
    native = torch.Stream("hpu:1")
    pretend.set_stream(1, native.stream_id)
    assert flagos.current_stream(1).stream_id == native.stream_id
    assert flagos.current_stream(1) != flagos.default_stream(1)
    assert flagos.default_stream(1).stream_id == 0


@on_pretend_device
def test_new_and_pooled_streams_keep_their_priority() -> None:
    torch.flagos.Stream(0, priority=-1)
    assert pretend.told("new stream: priority") == -1
    pooled = [pretend.pooled_stream("flagos:1", False) for _ in range(4)]
    assert sorted(pooled) == [1, 2, 3, 4]
    assert pretend.pooled_stream("hpu:1", False) == pooled[0], "one pool"
    assert pretend.pooled_stream("flagos:0", True) > 32


@on_pretend_device
def test_streams_are_asked_and_waited_for() -> None:
    stream = torch.flagos.Stream("flagos:1")
    assert stream.query()
    pretend.hold(True)
    assert not stream.query()
    pretend.hold(False)
    stream.synchronize()
    assert pretend.told("synchronize stream of hpu:1") == 1
    assert pretend.told("synchronize stream: id") == stream.stream_id
    if hasattr(stream, "native_handle"):
        assert stream.native_handle == 0x2000 + stream.stream_id


@on_pretend_device
def test_kernels_and_memory_are_on_the_current_stream() -> None:
    flagos = torch.flagos
    x = torch.ones(3, 3, device="flagos:1")
    assert pretend.memory_stream(x.data_ptr()) == 0
    with flagos.stream(flagos.Stream("flagos:1")):
        current = flagos.current_stream().stream_id
        y = x @ x
        assert pretend.told("mm: stream") == pretend.memory_stream(y.data_ptr()) == current
        z = torch.empty(5, device="flagos")
        assert pretend.memory_stream(z.data_ptr()) == current
    x @ x
    assert pretend.told("mm: stream") == 0


@on_pretend_device
def test_backward_runs_on_the_stream_of_forward() -> None:
    flagos = torch.flagos
    weight = torch.ones(3, 3, device="flagos:1", requires_grad=True)
    side = flagos.Stream("flagos:1")
    with flagos.stream(side):
        loss = (weight @ weight).sum()
    pretend.set_stream(1, 0)
    torch.ones(3, 3, device="flagos:1").mm(weight.detach())
    assert pretend.told("mm: stream") == 0
    loss.backward()
    assert pretend.told("mm: stream") == side.stream_id
    assert pretend.told("block") > 0, "the caller's stream waits for the gradients"
    assert weight.grad.tolist() == [[6.0] * 3] * 3


# -- events


@on_pretend_device
def test_events_are_the_targets() -> None:
    flagos = torch.flagos
    stream, other = flagos.Stream("flagos:1"), flagos.Stream("flagos:1")
    start, end = flagos.Event(enable_timing=True), torch.Event("flagos:1", enable_timing=True)
    begin = time.perf_counter()
    stream.record_event(start)
    time.sleep(0.03)
    end.record(stream)
    wall = (time.perf_counter() - begin) * 1e3
    assert pretend.told("record") == pretend.told("events alive") == 2
    other.wait_event(start)
    assert pretend.told("block") == 1
    assert pretend.told("block: waits") == other.stream_id + 1000
    assert pretend.told("block: for") == stream.stream_id
    pretend.hold(True)
    assert not end.query()
    pretend.hold(False)
    assert end.query()
    end.synchronize()
    assert pretend.told("synchronize event") >= 1
    assert 30 <= start.elapsed_time(end) <= wall
    other.wait_stream(stream)
    assert pretend.told("block") == 2
    with pytest.raises(RuntimeError, match="device"):
        end.record(flagos.Stream("flagos:0"))
    del start, end
    assert pretend.told("events alive") == 0


@on_pretend_device
def test_events_may_be_recorded_across_devices_of_streams() -> None:
    flagos = torch.flagos
    one, zero = flagos.Stream("flagos:1"), flagos.Stream("flagos:0")
    event = one.record_event()
    assert event.device == torch.device("flagos:1")
    zero.wait_event(event)
    assert pretend.told("block: waits") == zero.stream_id
    assert pretend.told("block: for") == one.stream_id


@on_pretend_device
def test_an_event_without_timing_has_no_time() -> None:
    stream = torch.flagos.Stream()
    start, end = stream.record_event(), stream.record_event()
    with pytest.raises((RuntimeError, ValueError)):
        start.elapsed_time(end)


# -- targets that cannot be stood on

MISSING = {
    "xpu": "This PyTorch has no support for xpu",
    "cpu": "cpu",
    "meta": "meta",
    "flagos": "flagos|device type",
    "no-such-device": "no-such-device|device type",
}


def _refuse(device_type: str) -> None:
    activate(device_type)
    assert not torch.flagos.is_available()
    for use in (lambda: torch.ones(2, device="flagos"), torch.flagos.init):
        with pytest.raises(RuntimeError, match=MISSING[device_type]):
            use()
    x = torch.ones(3, requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0] * 3, "torch without flagos stays usable"


@on_pretend_device(activate=False)
def test_a_target_that_this_torch_has_not_is_named() -> None:
    _refuse("xpu")


@on_pretend_device(activate=False)
def test_a_target_that_is_no_accelerator_is_refused() -> None:
    _refuse("cpu")


@on_pretend_device(activate=False)
def test_a_target_without_memory_is_refused() -> None:
    _refuse("meta")


@on_pretend_device(activate=False)
def test_flagos_cannot_stand_on_itself() -> None:
    _refuse("flagos")


@on_pretend_device(activate=False)
def test_a_target_that_is_no_device_is_refused() -> None:
    _refuse("no-such-device")
