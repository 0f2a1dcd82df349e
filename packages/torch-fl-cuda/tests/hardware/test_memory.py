"""Owns: tests that device memory and pinned memory of flagos are CUDA's: one pool, one set of
figures, and everything by which PyTorch shows and limits it."""

from __future__ import annotations

import gc
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu_busy import CYCLES, SHORT

from torch_fl.interop import as_flagos, as_target

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _nothing_is_freed_late() -> None:
    """And no odd cached block is given out whole: sizes are then as they were asked for."""
    torch.cuda.init()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def _bytes(mebibytes: int, device: str = "flagos", **how: Any) -> torch.Tensor:
    return torch.empty(mebibytes * MIB, dtype=torch.uint8, device=device, **how)


# -- statistics


def _agreed() -> dict[str, int]:
    """The figures, which all modules that may be asked must agree on."""
    figures: dict[str, int] = {}
    for kind in ("allocated", "reserved"):
        for name in (f"memory_{kind}", f"max_memory_{kind}"):
            told = [getattr(m, name)() for m in (torch.flagos, torch.cuda, torch.accelerator)]
            assert len(set(told)) == 1, (name, told)
            figures[name] = told[0]
    ours, theirs = torch.flagos.memory_stats(), torch.cuda.memory_stats()
    both = ours.keys() & theirs.keys()
    assert len(both) > 50
    assert {name: ours[name] for name in both} == {name: theirs[name] for name in both}
    return figures


@pytest.mark.parametrize("device", ["flagos", "cuda"])
def test_statistics_agree_whoever_allocates(device: str) -> None:
    before = _agreed()
    x = _bytes(30, device)
    y = x[: 20 * MIB].clone()
    during = _agreed()
    assert during["memory_allocated"] == before["memory_allocated"] + 50 * MIB
    assert during["memory_reserved"] >= before["memory_reserved"] + 50 * MIB
    del x
    assert _agreed()["memory_allocated"] == before["memory_allocated"] + 20 * MIB
    for reset in (torch.flagos.reset_peak_memory_stats, torch.cuda.reset_peak_memory_stats):
        _bytes(8, device)
        assert _agreed()["max_memory_allocated"] > during["memory_allocated"] - 30 * MIB
        reset()
        figures = _agreed()
        assert figures["max_memory_allocated"] == figures["memory_allocated"]
    del y
    assert _agreed()["memory_allocated"] == before["memory_allocated"]
    assert torch.flagos.mem_get_info()[1] == torch.cuda.mem_get_info()[1]


def test_either_name_gives_cached_memory_back() -> None:
    for module in (torch.flagos, torch.cuda, torch.accelerator):
        _bytes(64)
        before = _agreed()
        module.empty_cache()
        assert _agreed()["memory_reserved"] <= before["memory_reserved"] - 64 * MIB


def test_freed_memory_serves_the_other_name() -> None:
    for first, second in (("flagos", "cuda"), ("cuda", "flagos")):
        x = _bytes(48, first)
        where = x.data_ptr()
        del x
        assert _bytes(48, second).data_ptr() == where


# -- memory that another stream still uses


def _reuse(side: torch.Stream, recorded: torch.Stream | None) -> tuple[bool, list[float]]:
    """Frees memory that `side` is going to read, and asks for as much again and writes there.
    Whether that is the same memory, and what `side` read."""
    torch.cuda.synchronize()
    torch.flagos.empty_cache()
    read = torch.empty(8 * MIB, device="flagos")
    cached = [torch.ones_like(read) for _ in range(2)]  # nothing need be taken from CUDA later
    read.copy_(cached[0])
    del cached
    x = torch.ones_like(read)
    where = x.data_ptr()
    side.wait_stream(torch.flagos.current_stream())
    with torch.flagos.stream(side):
        torch.cuda._sleep(CYCLES)
        read.copy_(x)
    if recorded is not None:
        x.view(-1, 2).t()[1:].record_stream(recorded)  # a view's memory is the tensor's
    del x
    y = torch.empty_like(read).fill_(2)
    assert not side.query(), "the side stream was not busy for long enough"
    torch.cuda.synchronize()
    reused = y.data_ptr() == where
    del y
    again = [torch.empty_like(read) for _ in range(2)]
    assert where in {t.data_ptr() for t in again}, "what is used no more is given out again"
    return reused, read.unique().tolist()


def test_record_stream_defers_reuse() -> None:
    side = torch.flagos.Stream()
    with torch.flagos.stream(side):
        same = torch.cuda.current_stream()
    assert _reuse(side, None) == (True, [2.0]), "without it the memory is written while it is read"
    assert _reuse(side, side) == (False, [1.0])
    assert _reuse(side, same) == (False, [1.0])


# -- snapshots, history, pools, limits


def _found(segments: list[dict[str, Any]], address: int) -> list[tuple[str, int]]:
    blocks = (block for segment in segments for block in segment["blocks"])
    return [(block["state"], block["size"]) for block in blocks if block["address"] == address]


def test_snapshots_show_flagos_memory() -> None:
    x = _bytes(40)
    where = x.data_ptr()
    for module in (torch.flagos, torch.cuda):
        assert _found(module.memory_snapshot(), where) == [("active_allocated", 40 * MIB)]
        assert _found(module.memory._snapshot()["segments"], where)
    del x
    for module in (torch.flagos, torch.cuda):
        assert ("active_allocated", 40 * MIB) not in _found(module.memory_snapshot(), where)


def test_the_history_tells_who_allocated(tmp_path: Path) -> None:
    files = tmp_path / "flagos.pickle", tmp_path / "cuda.pickle"
    torch.flagos.memory._record_memory_history(stacks="python")
    try:
        where = _bytes(41).data_ptr()
        torch.flagos.memory._dump_snapshot(files[0])
        torch.cuda.memory._dump_snapshot(str(files[1]))
    finally:
        torch.flagos.memory._record_memory_history(None)
    for file in files:
        trace = pickle.loads(file.read_bytes())["device_traces"][torch.flagos.current_device()]
        mine = [event for event in trace if event["addr"] == where and event["size"] == 41 * MIB]
        assert [event["action"] for event in mine] == ["alloc", "free_requested", "free_completed"]
        named = [frame["name"] for frame in mine[0]["frames"]]
        assert named[:2] == ["_bytes", "test_the_history_tells_who_allocated"]


def test_a_pool_of_ones_own() -> None:
    pool = torch.flagos.MemPool()
    with torch.flagos.use_mem_pool(pool):
        inside = [_bytes(24), _bytes(24, "cuda"), _bytes(24).fill_(1)]
    outside = _bytes(24)
    for segments in (pool.snapshot(), torch.flagos.memory_snapshot(pool.id)):
        assert {segment["segment_pool_id"] for segment in segments} == {pool.id}
        assert all(_found(segments, x.data_ptr()) for x in inside)
        assert not _found(segments, outside.data_ptr())
    reserved = torch.cuda.memory_reserved()
    del inside, pool
    torch.flagos.empty_cache()
    assert torch.cuda.memory_reserved() <= reserved - 72 * MIB


@pytest.mark.parametrize("name", ["flagos", "cuda"])
def test_a_share_of_the_memory_limits_flagos(name: str) -> None:
    module = torch.get_device_module(name)
    limit = torch.cuda.memory_reserved() + 256 * MIB
    before = torch.cuda.get_per_process_memory_fraction()
    failed = torch.cuda.memory_stats()["num_ooms"]
    module.set_per_process_memory_fraction(limit / torch.cuda.mem_get_info()[1])
    try:
        shares = [m.get_per_process_memory_fraction() for m in (torch.flagos, torch.cuda)]
        assert shares[0] == shares[1] < before
        with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 512\.00 MiB"):
            _bytes(512)
        assert _bytes(128).fill_(1)[-1].item() == 1, "what is left can be had"
    finally:
        module.set_per_process_memory_fraction(before)
    assert _bytes(512).numel() == 512 * MIB
    assert torch.flagos.memory_stats()["num_ooms"] == failed + 1


SEGMENTS = """
    if {device!r} == "flagos":
        import torch_fl
    x = torch.empty(40 << 20, dtype=torch.uint8, device={device!r})
    where = x.data_ptr()
    segments = torch.get_device_module(x.device).memory_snapshot()
    print(json.dumps([
        segment["is_expandable"] for segment in segments
        if segment["address"] <= where < segment["address"] + segment["total_size"]
    ]))
"""
SETTINGS: dict[str, str | None] = {"PYTORCH_CUDA_ALLOC_CONF": None, "PYTORCH_ALLOC_CONF": None}


@pytest.mark.parametrize("variable", SETTINGS)
def test_the_allocator_takes_cudas_settings(variable: str, said: Any) -> None:
    settings = {**SETTINGS, variable: "expandable_segments:True"}
    told = [said(SEGMENTS.format(device=device), **settings) for device in ("cuda", "flagos")]
    assert told == [[True], [True]]


def test_without_settings_segments_do_not_grow(said: Any) -> None:
    assert said(SEGMENTS.format(device="flagos"), **SETTINGS) == [False]


# -- storages


def test_target_and_flagos_tensors_share_their_storage() -> None:
    x = torch.arange(24.0, device="flagos").view(4, 6)
    for view in (x, x[1:], x.t()[2:], x[::2, 1:]):
        target = as_target(view)
        assert target.is_cuda
        assert target.data_ptr() == view.data_ptr()
        assert (target.shape, target.stride()) == (view.shape, view.stride())
        assert as_flagos(target).data_ptr() == view.data_ptr()
        assert target.tolist() == view.tolist()
    as_target(x)[1].add_(100)
    assert x[1, 0].item() == 106


def test_shared_memory_lives_as_long_as_either_name() -> None:
    for make, share in ((_bytes, as_target), (lambda n: _bytes(n, "cuda"), as_flagos)):
        before = torch.cuda.memory_allocated()
        x = make(16).fill_(7)
        shared = share(x)
        del x
        assert torch.cuda.memory_allocated() == before + 16 * MIB
        assert shared.unique().tolist() == [7]
        del shared
        assert torch.cuda.memory_allocated() == before


def test_storages_are_resized_in_cudas_memory() -> None:
    before = torch.cuda.memory_allocated()
    x = _bytes(8).fill_(5)
    x.untyped_storage().resize_(24 * MIB)
    assert torch.cuda.memory_allocated() == before + 24 * MIB
    assert as_target(x).untyped_storage().nbytes() == 24 * MIB
    assert as_target(x).data_ptr() == x.data_ptr()
    assert x.unique().tolist() == [5]
    x.untyped_storage().resize_(0)
    assert torch.cuda.memory_allocated() == before
    x.untyped_storage().resize_(8 * MIB)
    assert as_target(x.fill_(6)).unique().tolist() == [6]


# -- pinned memory


def test_pinned_memory_is_cudas() -> None:
    cupy = pytest.importorskip("cupy")

    def kind(tensor: torch.Tensor) -> int:
        return int(cupy.cuda.runtime.pointerGetAttributes(tensor.data_ptr()).type)

    unknown, host, device = 0, 1, 2  # enum cudaMemoryType
    assert kind(torch.ones(4 * MIB)) == unknown
    assert not torch.ones(4 * MIB).is_pinned()
    assert kind(_bytes(1)) == device
    torch.empty(4 * MIB, pin_memory=True)  # looks after what was given back before
    before = torch.cuda.host_memory_stats()["active_requests.current"]
    made = [
        torch.empty(4 * MIB, pin_memory=True),
        torch.ones(4 * MIB).pin_memory(),
        torch.empty_like(_bytes(4), device="cpu", pin_memory=True),
    ]
    assert [(kind(x), x.is_pinned()) for x in made] == [(host, True)] * 3
    for module in (torch.flagos, torch.cuda):
        assert module.host_memory_stats()["active_requests.current"] == before + 3
    theirs = torch.frombuffer(cupy.cuda.alloc_pinned_memory(4096), dtype=torch.uint8)
    assert theirs.is_pinned(), "CUDA knows, whoever pinned it"


def test_copies_of_pinned_memory_do_not_wait() -> None:
    there = torch.zeros(MIB, device="flagos")
    pinned, back = torch.ones(MIB).pin_memory(), torch.empty(MIB, pin_memory=True)
    queue = torch.flagos.current_stream()
    there.copy_(pinned, non_blocking=True)
    back.copy_(there, non_blocking=True)
    torch.flagos.synchronize()
    pinned.fill_(3)
    torch.cuda._sleep(CYCLES)
    there.copy_(pinned, non_blocking=True)
    back.copy_(there, non_blocking=True)
    seen = back[-1].item()
    assert not queue.query(), "the copies have waited"
    assert seen == 1
    queue.synchronize()
    assert back.unique().tolist() == [3]
    torch.cuda._sleep(SHORT)
    assert there.cpu()[-1].item() == 3
    assert queue.query(), "a copy to memory that is not pinned waits"


@pytest.mark.parametrize("copied", [True, False], ids=["copied", "not copied"])
def test_pinned_memory_is_not_reused_while_it_is_copied(copied: bool) -> None:
    there = _bytes(50)
    torch.cuda.synchronize()
    pinned = _bytes(50, "cpu", pin_memory=True)
    where = pinned.data_ptr()
    torch.cuda._sleep(CYCLES)
    if copied:
        there.copy_(pinned, non_blocking=True)
    del pinned
    others = [_bytes(50, "cpu", pin_memory=True) for _ in range(2)]
    assert (where in {x.data_ptr() for x in others}) is not copied
    torch.cuda.synchronize()


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_are_pinned(workers: int) -> None:
    data = torch.utils.data.TensorDataset(torch.arange(64.0).view(16, 4))
    total = 0.0
    loader = torch.utils.data.DataLoader(data, 4, pin_memory=True, num_workers=workers)
    for (batch,) in loader:
        assert batch.is_pinned()
        total += batch.to("flagos", non_blocking=True).sum().item()
    assert total == 64 * 63 / 2
