"""Owns: tests that torch.flagos says of a GPU what torch.cuda says, and that profilers see flagos'
work as CUDA's."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

MiB = 2**20


def test_properties_are_the_gpus() -> None:
    for index in range(torch.cuda.device_count()):
        ours = torch.flagos.get_device_properties(index)
        theirs = torch.cuda.get_device_properties(index)
        for name in ("name", "total_memory", "multi_processor_count", "major", "minor"):
            assert getattr(ours, name) == getattr(theirs, name), name
        assert ours.uuid == str(theirs.uuid)
        assert ours.warp_size == theirs.warp_size == 32
        assert ours.extra["L2_cache_size"] == theirs.L2_cache_size
        assert torch.flagos.get_device_name(index) == torch.cuda.get_device_name(index)
        capability = torch.cuda.get_device_capability(index)
        assert torch.flagos.get_device_capability(index) == capability
    assert torch.flagos.device_count() == torch.cuda.device_count()
    assert torch.flagos.get_arch_list() == torch.cuda.get_arch_list() != []
    assert torch.flagos.is_bf16_supported() == torch.cuda.is_bf16_supported()
    assert torch.flagos.is_tf32_supported() == torch.cuda.is_tf32_supported()


def test_free_memory_is_the_gpus() -> None:
    free, total = torch.flagos.mem_get_info()
    assert total == torch.cuda.mem_get_info()[1]
    assert 0 < free < total
    # Other processes come and go: of several looks, some must be close.
    looks = [(torch.flagos.mem_get_info()[0], torch.cuda.mem_get_info()[0]) for _ in range(20)]
    assert min(abs(ours - theirs) for ours, theirs in looks) <= MiB


@pytest.fixture
def some_memory() -> Iterator[None]:
    torch.cuda.reset_peak_memory_stats()
    kept = [torch.ones(MiB * size, device="flagos") for size in (1, 3)]
    big = torch.ones(64 * MiB, dtype=torch.uint8, device="flagos")
    del big
    yield
    del kept


@pytest.mark.usefixtures("some_memory")
def test_every_statistic_is_cudas() -> None:
    ours, theirs = torch.flagos.memory_stats(), torch.cuda.memory_stats()
    shared = set(ours) & set(theirs)
    assert {"allocated_bytes.all.peak", "segment.all.current", "num_ooms"} <= shared
    assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}
    pools = [name for name in theirs if name.count(".") == 2]
    assert set(pools) <= set(ours), "none is missing"


@pytest.mark.usefixtures("some_memory")
def test_the_summary_has_cudas_figures() -> None:
    stats = torch.cuda.memory_stats()
    lines = torch.flagos.memory_summary(abbreviated=True).splitlines()
    rows = {re.split(r"\s{2,}", line)[0]: re.split(r"\s{2,}", line)[1:] for line in lines}
    columns = ("current", "peak", "allocated", "freed")
    for title, metric in (("Allocations", "allocation"), ("Reserved segments", "segment")):
        assert rows[title] == [str(stats[f"{metric}.all.{column}"]) for column in columns]
    units = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
    metrics = (("Allocated memory", "allocated_bytes"), ("Reserved memory", "reserved_bytes"))
    for title, metric in metrics:
        for column, shown in zip(columns, rows[title], strict=True):
            number, unit = shown.split()
            expected = stats[f"{metric}.all.{column}"]
            assert float(number) * units[unit] == pytest.approx(
                expected, abs=0.0501 * units[unit]
            ), (title, column)


def test_kernels_belong_to_the_operators_that_launched_them() -> None:
    x = torch.randn(128, 128, device="flagos", requires_grad=True)
    (x @ x).sigmoid().sum().backward()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        (x @ x).sigmoid().sum().backward()
        torch.flagos.synchronize()
    events = seen.events() or []
    kernels = {
        event.name
        for event in events
        if event.device_type == DeviceType.PrivateUse1  # whose kernels they are: flagos'
        and not event.is_user_annotation
        and not event.name.startswith(("Mem", "Activity Buffer"))
    }
    launched: dict[str, set[str]] = {}
    for event in events:
        if event.device_type == DeviceType.CPU:
            launched.setdefault(event.name, set()).update(k.name for k in event.kernels)
    for name in ("aten::mm", "aten::sigmoid", "aten::sum", "aten::sigmoid_backward"):
        assert launched.get(name), f"{name} has no kernel"
        assert launched[name] & kernels, name
    assert not launched["aten::mm"] & launched["aten::sum"]
    found = {row.key: row for row in seen.key_averages()}
    assert found["aten::mm"].device_time_total > 0
    assert found["aten::mm"].count == 3, "one forward and two backward, each seen once"
    assert kernels <= set().union(*launched.values()), "every kernel has an operator"


def test_marks_reach_the_vendors_profiler() -> None:
    assert torch.flagos.nvtx is torch.cuda.nvtx
    with torch.flagos.nvtx.range("a step"), torch.autograd.profiler.emit_nvtx():
        assert (torch.ones(2, device="flagos") + 1).tolist() == [2, 2]
