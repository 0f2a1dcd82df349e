"""Owns: tests that memory of a runtime on another device of PyTorch is that device's: one pool, its
statistics and errors, its pinned memory, its storages. What the target is: test_delegate.py.
"""

from __future__ import annotations

import io

import pytest
import torch
from pretend_device.loading import activate
from pretend_device.processes import on_pretend_device

pretend = torch.ops.pretend
MIB = 1 << 20


def _statistics_agree(device: int) -> None:
    ours, theirs = torch.flagos.memory_stats(device), pretend.memory(device)
    wrong = {name: (ours[name], theirs[name]) for name in theirs if name in ours}
    assert len(wrong) > 25
    assert all(a == b for a, b in wrong.values()), wrong
    assert torch.flagos.mem_get_info(device) == (theirs["free"], theirs["total"])
    assert torch.accelerator.get_memory_info(device) == (theirs["free"], theirs["total"])


@on_pretend_device
def test_statistics_are_the_targets() -> None:
    flagos = torch.flagos
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="flagos:1")
    assert flagos.memory_allocated(1) == 3 * MIB
    assert flagos.memory_allocated(0) == 0
    _statistics_agree(0)
    _statistics_agree(1)
    y = x[: 2 * MIB].clone()
    del x
    _statistics_agree(1)
    assert flagos.max_memory_allocated(1) == 5 * MIB
    flagos.reset_peak_memory_stats(1)
    assert flagos.max_memory_allocated(1) == pretend.memory(1)["allocated_bytes.all.current"]
    flagos.reset_accumulated_memory_stats(1)
    assert pretend.memory(1)["allocation.all.allocated"] == 0
    assert flagos.memory_reserved(1) == 5 * MIB
    flagos.empty_cache()
    assert flagos.memory_reserved(1) == 2 * MIB
    _statistics_agree(1)
    del y
    torch.accelerator.empty_cache()
    assert flagos.memory_reserved(1) == 0


@on_pretend_device
def test_there_is_one_pool() -> None:
    native = torch.empty(MIB, dtype=torch.uint8, device="hpu:1")
    where = native.data_ptr()
    torch.flagos.init()
    assert torch.flagos.memory_allocated(1) == MIB
    del native
    ours = torch.empty(MIB, dtype=torch.uint8, device="flagos:1")
    assert ours.data_ptr() == where
    del ours
    assert torch.empty(MIB, dtype=torch.uint8, device="hpu:1").data_ptr() == where


@on_pretend_device
def test_tensors_are_twins_of_the_targets() -> None:
    for index in (0, 1):
        for tensor in (
            torch.empty(5, device=f"flagos:{index}"),
            torch.ones(5, 5, device=f"flagos:{index}").t()[1:],
            torch.ones(5, device=f"flagos:{index}") + 1,
            torch.arange(5).to(f"flagos:{index}"),
        ):
            assert tensor.device == torch.device("flagos", index)
            assert pretend.seen(tensor) == [f"hpu:{index}"] * 4


@on_pretend_device
def test_record_stream_reaches_the_allocator_with_its_own_pointer() -> None:
    stream = torch.flagos.Stream("flagos:1")
    x = torch.empty(10, 10, device="flagos:1")
    x.record_stream(stream)
    assert pretend.told("record_stream") == 1
    assert pretend.told("record_stream: data") == x.data_ptr()
    assert pretend.told("record_stream: stream") == stream.stream_id
    view = x.t()[3:]
    view.record_stream(torch.flagos.default_stream(1))
    assert pretend.told("record_stream") == 2
    assert pretend.told("record_stream: data") == x.data_ptr()
    assert pretend.told("record_stream: stream") == 0
    made = x @ x
    made.record_stream(stream)
    assert pretend.told("record_stream: data") == made.data_ptr()


@on_pretend_device
def test_out_of_memory_is_the_targets() -> None:
    flagos = torch.flagos
    pretend.set_memory_limit(2 * MIB)
    kept = torch.empty(MIB, dtype=torch.uint8, device="flagos:1")
    torch.empty(MIB, dtype=torch.uint8, device="flagos:1")  # stays in the cache
    assert torch.empty(MIB // 2, dtype=torch.uint8, device="flagos:1").numel() == MIB // 2
    assert flagos.memory_stats(1)["num_alloc_retries"] == 1
    sizes = f"Tried to allocate {2 * MIB} bytes"
    with pytest.raises(flagos.OutOfMemoryError, match=sizes):
        torch.empty(2 * MIB, dtype=torch.uint8, device="flagos:1")
    with pytest.raises(torch.OutOfMemoryError, match=sizes) as inside:
        torch.cat([kept, kept])
    assert "flagos:1 has a total capacity" in str(inside.value)
    assert flagos.memory_stats(1)["num_ooms"] == 2
    assert flagos.memory_stats(0)["num_ooms"] == 0
    del kept, inside
    assert flagos.memory_allocated(1) == 0
    torch.empty(2 * MIB, dtype=torch.uint8, device="flagos:1")


@on_pretend_device
def test_the_current_device_survives_a_failed_allocation() -> None:
    x = torch.ones(8, dtype=torch.uint8, device="flagos:1")
    pretend.set_memory_limit(MIB)
    for grow in (
        lambda: torch.empty(2 * MIB, dtype=torch.uint8, device="flagos:1"),
        lambda: x.untyped_storage().resize_(2 * MIB),
        lambda: x.resize_(2 * MIB),
        lambda: x.new_zeros(0).set_(x.untyped_storage(), 0, (2 * MIB,), (1,)),
    ):
        with pytest.raises(torch.OutOfMemoryError):
            grow()
        assert torch.flagos.current_device() == pretend.current_device() == 0
    assert x.tolist()[:8] == [1] * 8


@on_pretend_device
def test_pinned_memory_is_the_targets() -> None:
    flagos = torch.flagos
    pinned = torch.arange(256.0).pin_memory()
    assert pinned.is_pinned()
    assert pretend.is_pinned(pinned.data_ptr())
    assert pretend.told("pinned bytes") == 1024
    assert not torch.ones(3).is_pinned()
    assert torch.empty(16, pin_memory=True).is_pinned()
    stream = flagos.Stream("flagos:1")
    with flagos.stream(stream):
        there = pinned.to("flagos:1", non_blocking=True)
        assert pretend.told("pinned: record_event") == 1
        assert pretend.told("pinned: stream") == stream.stream_id
        back = torch.empty(256, pin_memory=True).copy_(there, non_blocking=True)
        assert pretend.told("pinned: record_event") == 2
    assert torch.equal(back, torch.arange(256.0))
    torch.accelerator.empty_host_cache()
    assert pretend.told("pinned: empty_cache") == 1
    del pinned, back
    assert pretend.told("pinned bytes") == 0


@on_pretend_device(activate=False)
def test_memory_that_the_target_has_pinned_before_is_known_as_pinned() -> None:
    pinned = torch.ones(5).pin_memory()
    assert pretend.is_pinned(pinned.data_ptr())
    activate()
    x = torch.ones(5, device="flagos:1")
    assert pinned.is_pinned()
    x.copy_(pinned, non_blocking=True)
    assert pretend.told("pinned: record_event") == 1


@on_pretend_device
def test_a_pointer_tells_its_device() -> None:
    x = torch.ones(5, device="flagos:1")
    assert pretend.device_of_pointer("hpu", x.data_ptr()) == "hpu:1"
    assert pretend.device_of_pointer("flagos", x[3:].data_ptr()) == "flagos:1"
    with pytest.raises(RuntimeError, match="not flagos device memory"):
        pretend.device_of_pointer("flagos", torch.ones(2).data_ptr())


@on_pretend_device
def test_storages_are_resized_and_shared() -> None:
    x = torch.arange(4.0, device="flagos:1")
    x.untyped_storage().resize_(32)
    assert x.untyped_storage().nbytes() == 32
    assert pretend.seen(x) == ["hpu:1"] * 4
    y = torch.empty(0, device="flagos:1").set_(x)
    y[0] = 9
    y.resize_(8)
    assert x.tolist() == [9, 1, 2, 3]
    x.resize_(100)
    assert x[:4].tolist() == [9, 1, 2, 3]
    assert y.data_ptr() == x.data_ptr(), "one storage"
    assert pretend.seen(y) == ["hpu:1"] * 4
    x.untyped_storage().resize_(0)
    assert torch.flagos.memory_allocated(1) == 0


@on_pretend_device
def test_copies_in_every_direction() -> None:
    values = torch.arange(12.0).view(3, 4)
    for device in ("flagos:0", "flagos:1", "hpu:0", "hpu:1"):
        for other in ("flagos:0", "flagos:1", "hpu:0", "hpu:1", "cpu"):
            there = values.to(device)
            copied = there.to(other)
            assert copied.device == torch.device(other)
            assert torch.equal(copied.cpu(), values)
            target = torch.zeros(4, 3, dtype=torch.int64, device=other)
            target.t().copy_(there)
            assert torch.equal(target.cpu(), values.t().long())
    assert pretend.current_device() == 0


@on_pretend_device
def test_saved_tensors_come_back() -> None:
    file = io.BytesIO()
    torch.save([torch.arange(5.0, device="flagos:1"), torch.ones(2, device="flagos:0")], file)
    file.seek(0)
    first, second = torch.load(file)
    assert (first.device.index, second.device.index) == (1, 0)
    assert first.tolist() == [0, 1, 2, 3, 4]
    assert pretend.seen(first) == ["hpu:1"] * 4
    file.seek(0)
    moved = torch.load(file, map_location="flagos:0")
    assert pretend.seen(moved[0]) == ["hpu:0"] * 4
    assert (moved[0] + 1).tolist() == [1, 2, 3, 4, 5]


@on_pretend_device
def test_everything_is_given_back() -> None:
    def work() -> None:
        weight = torch.randn(8, 8, device="flagos:1", requires_grad=True)
        for _ in range(20):
            (weight @ weight).relu().sum().backward()
            weight.data = weight.data.clone()
            weight.grad = None

    work()
    assert torch.flagos.memory_allocated(1) == 0
    assert pretend.memory(1)["active.all.current"] == 0
    assert pretend.told("events alive") == 0
