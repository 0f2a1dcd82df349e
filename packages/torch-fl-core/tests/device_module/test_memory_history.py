"""Owns: tests of memory snapshots and history, read by PyTorch's own memory viewer."""

from __future__ import annotations

import gc
import pickle
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import torch
from children import output_of_child
from torch.cuda import _memory_viz

import torch_fl  # noqa: F401  (makes the device)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

flagos = torch.flagos
memory = flagos.memory
MIB = 1 << 20
LARGE = 3 * MIB  # bytes; a segment of its own


@pytest.fixture(autouse=True)
def _history_is_off_before_and_after() -> Iterator[None]:
    flagos.init()
    gc.collect()
    memory._record_memory_history(None)
    yield
    memory._record_memory_history(None)


def _new(nbytes: int) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, device="flagos")


def _events(address: int | None = None, device: int = 0) -> list[dict[str, Any]]:
    trace = memory._snapshot()["device_traces"][device]
    return [event for event in trace if address is None or event.get("addr") == address]


def _block(address: int) -> dict[str, Any]:
    blocks = (
        block
        for segment in memory._snapshot()["segments"]
        for block in segment["blocks"]
        if block["address"] == address
    )
    return next(blocks)


def _names(frames: list[dict[str, Any]]) -> list[str]:
    return [frame["name"] for frame in frames]


def test_segments_hold_every_byte_once() -> None:
    keep = [_new(size) for size in (1, 64, 100, 5000, MIB, LARGE, LARGE + 1)]
    freed = _new(LARGE)
    del freed
    snapshot = memory._snapshot()
    requested = Counter()
    for segment in snapshot["segments"]:
        expected = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == expected
            assert block["size"] > 0
            assert block["state"] in ("active_allocated", "inactive")
            assert block["requested_size"] <= block["size"]
            expected += block["size"]
            if block["state"] == "active_allocated":
                requested[block["address"]] = block["requested_size"]
        assert expected == segment["address"] + segment["total_size"]
        active = [b for b in segment["blocks"] if b["state"] == "active_allocated"]
        assert segment["allocated_size"] == segment["active_size"] == sum(b["size"] for b in active)
        assert segment["requested_size"] == sum(b["requested_size"] for b in active)
        assert (segment["stream"], segment["segment_pool_id"]) == (0, (0, 0))
        assert segment["is_expandable"] is False
    for tensor in keep:
        assert requested[tensor.data_ptr()] == tensor.numel()
    stats = flagos.memory_stats()
    segments = [s for s in snapshot["segments"] if s["device"] == 0]
    assert sum(s["allocated_size"] for s in segments) == stats["allocated_bytes.all.current"]
    assert sum(s["requested_size"] for s in segments) == stats["requested_bytes.all.current"]
    for kind in ("small", "large"):
        of_kind = [s for s in segments if s["segment_type"] == kind]
        assert len(of_kind) == stats[f"segment.{kind}_pool.current"] > 0
    assert sum(s["total_size"] for s in segments) >= stats["reserved_bytes.all.current"]


def test_off_by_default_it_records_nothing() -> None:
    tensor = _new(LARGE)
    snapshot = memory._snapshot()
    assert snapshot["device_traces"] == [[]] * flagos.device_count()
    assert _block(tensor.data_ptr())["frames"] == []


def test_an_allocation_is_told_with_the_stack_that_asked() -> None:
    memory._record_memory_history(stacks="python")
    tensor = _new(LARGE)
    address = tensor.data_ptr()
    block = _block(address)
    assert (block["state"], block["requested_size"]) == ("active_allocated", LARGE)
    frame, caller = block["frames"][:2]
    assert (frame["name"], caller["name"]) == (
        "_new",
        "test_an_allocation_is_told_with_the_stack_that_asked",
    )
    assert frame["filename"] == __file__
    assert frame["line"] == _new.__code__.co_firstlineno + 1

    def let_go() -> None:
        nonlocal tensor
        tensor = None

    let_go()
    events = _events(address)
    # (The segment may have been cached.)
    told = [e["action"] for e in events if not e["action"].startswith("segment")]
    assert told == ["alloc", "free_requested", "free_completed"]
    alloc, free = events[-3], events[-1]
    assert alloc["size"] == free["size"] == LARGE
    assert _names(alloc["frames"])[0] == "_new"
    assert _names(free["frames"])[0] == "let_go"
    assert 0 < alloc["time_us"] <= free["time_us"]
    assert (alloc["stream"], alloc["pool_id"]) == (0, (0, 0))


def test_results_of_kernels_are_told_too() -> None:
    x = torch.ones(MIB, device="flagos")
    memory._record_memory_history(stacks="python")
    y = x * 2
    (alloc,) = (e for e in _events(y.data_ptr()) if e["action"] == "alloc")
    assert alloc["size"] == 4 * MIB
    assert _names(alloc["frames"])[0] == "test_results_of_kernels_are_told_too"


def test_segments_come_and_go() -> None:
    flagos.empty_cache()
    memory._record_memory_history(stacks="python")
    tensor = _new(LARGE)
    address = tensor.data_ptr()
    del tensor
    flagos.empty_cache()
    actions = [event["action"] for event in _events(address)]
    assert actions == ["segment_alloc", "alloc", "free_requested", "free_completed", "segment_free"]
    sizes = {e["size"] for e in _events(address) if e["action"].startswith("segment")}
    assert sizes == {4 * MIB}


def test_out_of_memory_is_told_with_what_was_free() -> None:
    memory._record_memory_history(stacks="python")
    free, _ = flagos.mem_get_info()
    with pytest.raises(torch.OutOfMemoryError):
        _new(1 << 50)
    (event,) = (e for e in _events() if e["action"] == "oom")
    assert event["size"] == 1 << 50
    assert abs(event["device_free"] - free) <= 16 * MIB
    assert "addr" not in event
    assert "_new" in _names(event["frames"])


def test_a_snapshot_marks_its_place() -> None:
    memory._record_memory_history(stacks="python")
    memory._snapshot()
    last = _events()[-1]
    assert last["action"] == "snapshot"
    assert last["size"] == flagos.memory_allocated()
    assert len([e for e in _events() if e["action"] == "snapshot"]) == 3


def test_only_the_newest_events_are_kept() -> None:
    memory._record_memory_history(stacks="python", max_entries=7, skip_actions=["snapshot"])
    for size in range(1, 21):
        _new(size * 64)
    events = _events()
    assert len(events) == 7
    assert [e["size"] for e in events] == [18 * 64, *[19 * 64] * 3, *[20 * 64] * 3]
    assert [e["action"] for e in events[1:4]] == ["alloc", "free_requested", "free_completed"]
    times = [e["time_us"] for e in events]
    assert times == sorted(times)
    memory._record_memory_history(stacks="python", max_entries=3, skip_actions=["snapshot"])
    assert [e["size"] for e in _events()] == [20 * 64] * 3, "what fits stays"
    memory._record_memory_history(stacks="python", clear_history=True)
    assert [e["action"] for e in _events()] == ["snapshot"]


def test_state_keeps_who_holds_memory_and_no_events() -> None:
    memory._record_memory_history("state", stacks="python")
    tensor = _new(LARGE)
    assert _events() == []
    assert "_new" in _names(_block(tensor.data_ptr())["frames"])


@pytest.mark.parametrize(
    ("context", "block", "alloc", "free"),
    [
        (None, False, False, False),
        ("state", True, False, False),
        ("alloc", True, True, False),
        ("all", True, True, True),
    ],
)
def test_stacks_are_kept_as_asked(
    context: str | None, block: bool, alloc: bool, free: bool
) -> None:
    memory._record_memory_history(context=context, stacks="python")
    tensor = _new(LARGE)
    address = tensor.data_ptr()
    assert bool(_block(address)["frames"]) is block
    del tensor
    events = {event["action"]: bool(event["frames"]) for event in _events(address)}
    assert (events["alloc"], events["free_completed"]) == (alloc, free)


def test_frames_of_cpp_are_there_when_asked_for() -> None:
    memory._record_memory_history(stacks="all")
    tensor = _new(LARGE)
    everything = _names(_block(tensor.data_ptr())["frames"])
    memory._record_memory_history(stacks="python")
    other = _new(LARGE)
    python = _names(_block(other.data_ptr())["frames"])
    assert "_new" in everything
    assert "_new" in python
    # (Not a name of our own library: an installed one has none of its inner functions.)
    assert any("at::" in name for name in everything)
    assert not any("at::" in name for name in python)
    assert not any("torch_fl::" in name for name in python)


def test_wrong_words_are_refused() -> None:
    for wrong in (
        {"enabled": "some"},
        {"context": "none"},
        {"stacks": "cpp"},
        {"skip_actions": ["allocate"]},
    ):
        with pytest.raises(ValueError, match="must be"):
            memory._record_memory_history(**wrong)
    assert _events() == []


def test_true_and_false_of_older_scripts() -> None:
    memory._record_memory_history(True)
    _new(LARGE)
    assert _events() != []
    memory._record_memory_history(False)
    assert _events() == []


def test_blocks_freed_while_it_was_off_are_not_taken_for_their_successors() -> None:
    flagos.empty_cache()
    memory._record_memory_history(stacks="python")
    first = _new(LARGE)
    address = first.data_ptr()
    memory._record_memory_history(None)
    del first
    second = _new(LARGE)
    assert second.data_ptr() == address, "the block is used again"
    memory._record_memory_history(stacks="python")
    assert _block(address)["frames"] == []


def test_threads_allocate_and_free_while_history_is_switched() -> None:
    stop = threading.Event()
    problems: list[BaseException] = []

    def work() -> None:
        try:
            while not stop.is_set():
                x = torch.ones(1000, device="flagos")
                assert (x + x).sum().item() == 2000
        except BaseException as error:
            problems.append(error)

    before = flagos.memory_allocated()
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(60):
        enabled = "all" if turn % 3 else None
        memory._record_memory_history(enabled, stacks="python", max_entries=500)
        for trace in memory._snapshot()["device_traces"]:
            assert len(trace) <= 500
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    gc.collect()
    assert flagos.memory_allocated() == before


def test_each_device_has_its_own_trace() -> None:
    output_of_child(
        """
        import torch, torch_fl
        memory = torch.flagos.memory
        memory._record_memory_history(stacks="python", skip_actions=["snapshot"])
        x = torch.ones(3 << 20, device="flagos:1")
        first, second = memory._snapshot()["device_traces"]
        assert first == [] and [e["action"] for e in second] == ["segment_alloc", "alloc"]
        assert {s["device"] for s in memory._snapshot(1)["segments"]} == {1}
        assert [s["address"] for s in torch.flagos.memory_snapshot()] == [x.data_ptr()]
        assert torch.flagos.memory_snapshot((0, 0)) == torch.flagos.memory_snapshot()
        assert torch.flagos.memory_snapshot((0, 1)) == []
        """,
        FLAGOS_HOST_DEVICES="2",
    )


def test_a_process_that_records_ends_in_peace() -> None:
    output_of_child(
        """
        import torch, torch_fl
        torch.flagos.memory._record_memory_history()
        keep = [torch.ones(100, device="flagos", requires_grad=True) for _ in range(10)]
        sum(x.sum() for x in keep).backward()
        """
    )


# -- PyTorch's memory viewer


@pytest.fixture
def snapshot() -> dict[str, Any]:
    memory._record_memory_history(stacks="python")
    keep = [_new(size) for size in (100, 5000, LARGE, 30 * MIB)]
    _new(7 * MIB)
    with pytest.raises(torch.OutOfMemoryError):
        _new(1 << 50)
    taken = memory._snapshot()
    assert len(keep) == 4
    return taken


def test_viewer_sums_segments_up(snapshot: dict[str, Any]) -> None:
    text = _memory_viz.segsum(snapshot)  # checks that the blocks fill their segments
    assert f"segments: {len(snapshot['segments'])}" in text
    assert "[aa]" in text, "30 MiB in two pages of 20"


def test_viewer_tells_the_trace(snapshot: dict[str, Any]) -> None:
    text = _memory_viz.trace(snapshot)
    assert "Device 0" in text
    assert "raise OutOfMemoryError # 1.0PiB requested" in text
    assert "[0:30.0MiB]" in text
    assert "# free completed for" in text


def test_viewer_makes_flame_graphs(snapshot: dict[str, Any]) -> None:
    lines = _memory_viz.memory(snapshot, format_flamegraph=str.splitlines)
    (mine,) = (line for line in lines if line.endswith(f" {30 * MIB}"))
    assert mine.startswith("stream_0;active_allocated;")
    assert "test_memory_history.py" in mine
    assert mine.rpartition(" ")[0].endswith(":_new")
    assert any("seg_" in line for line in _memory_viz.segments(snapshot, str.splitlines))


def test_viewer_plots(snapshot: dict[str, Any]) -> None:
    assert "Allocator State History" in _memory_viz.segment_plot(snapshot)
    assert "Active Memory Timeline" in _memory_viz.trace_plot(snapshot)
    assert "Active Cached Memory Timeline" in _memory_viz.trace_plot(snapshot, plot_segments=True)
    assert "base64" in _memory_viz.trace_plot(snapshot, filter_freed=True)
    left = Counter(e["action"] for e in snapshot["device_traces"][0])
    assert left["free_requested"] == left["free_completed"] == 0
    assert left["alloc"] == 4


def test_viewer_reads_the_file(tmp_path: Path) -> None:
    memory._record_memory_history(stacks="python")
    keep = _new(LARGE)
    path = tmp_path / "memory.pickle"
    memory._dump_snapshot(path)
    read = pickle.loads(path.read_bytes())
    assert set(read) >= {"segments", "device_traces"}
    assert any(
        block["address"] == keep.data_ptr() and block["frames"]
        for segment in read["segments"]
        for block in segment["blocks"]
    )
    assert _memory_viz.segsum(read)


def test_frames_of_generated_code_say_what_they_were_made_from() -> None:
    """The function behind it is private to PyTorch: here it must be, and take our snapshot."""
    from torch_fl._compat.compiler import fx_frames

    class Doubler(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    traced = torch.fx.symbolic_trace(Doubler())
    x = torch.ones(MIB, device="flagos")
    memory._record_memory_history(stacks="python")
    y = traced(x)
    taken = memory._snapshot(augment_with_fx_traces=True)
    (block,) = (
        block
        for segment in taken["segments"]
        for block in segment["blocks"]
        if block["address"] == y.data_ptr()
    )
    assert "forward" in _names(block["frames"])
    assert fx_frames.explain({"segments": [], "device_traces": []}) == {
        "segments": [],
        "device_traces": [],
    }
