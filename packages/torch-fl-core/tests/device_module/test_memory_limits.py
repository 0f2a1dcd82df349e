"""Owns: tests of the limit that a process sets itself, of the cache, of memory without tensors."""

from __future__ import annotations

import pytest
import torch
from children import output_of_child

import torch_fl  # noqa: F401  (makes the device)

flagos = torch.flagos
MIB = 1 << 20


def test_a_fraction_is_a_limit_that_raises() -> None:
    output_of_child(
        """
        import torch, torch_fl
        flagos, MIB = torch.flagos, 1 << 20
        def new(mib, device="flagos:0"):
            return torch.empty(mib * MIB, dtype=torch.uint8, device=device)
        assert flagos.get_per_process_memory_fraction() == 1.0
        flagos.set_per_process_memory_fraction(0.5)
        assert flagos.get_per_process_memory_fraction(0) == 0.5
        assert flagos.get_per_process_memory_fraction(1) == 1.0, "each device has its own"
        keep = new(24)
        for too_much in (12, 33, 65, 1 << 40):
            try:
                new(too_much)
            except torch.OutOfMemoryError as error:
                text = str(error)
                assert "may reserve 32.00 MiB of it (set_per_process_memory_fraction)" in text, text
                assert "total capacity of 64.00 MiB" in text, text
            else:
                raise AssertionError(f"{too_much} MiB were to be had")
        assert flagos.memory_stats()["num_ooms"] == 4
        assert new(8).numel() == 8 * MIB, "what fits is to be had"
        assert new(60, "flagos:1").numel() == 60 * MIB
        small = []
        try:
            while True: small.append(torch.empty(1000, device="flagos:0"))
        except torch.OutOfMemoryError:
            assert flagos.memory_reserved() <= 32 * MIB
        del small
        flagos.set_per_process_memory_fraction(1.0, "flagos:0")
        assert new(32).numel() == 32 * MIB
        flagos.set_per_process_memory_fraction(0.0)
        flagos.empty_cache()
        try:
            new(1)
        except torch.OutOfMemoryError:
            pass
        else:
            raise AssertionError("nothing is allowed")
        flagos.set_per_process_memory_fraction(1.0)
        assert keep.fill_(7).min() == 7
        assert flagos.mem_get_info()[1] == 64 * MIB, "the device itself is as large as ever"
        """,
        FLAGOS_HOST_MEMORY="64MiB",
        FLAGOS_HOST_DEVICES="2",
    )


def test_the_limit_holds_for_kernels_results_too() -> None:
    output_of_child(
        """
        import torch, torch_fl
        x = torch.ones(4 << 20, device="flagos")
        torch.flagos.set_per_process_memory_fraction(0.45)
        try:
            x + 1
        except torch.OutOfMemoryError as error:
            assert "set_per_process_memory_fraction" in str(error)
        else:
            raise AssertionError("16 MiB more than 28.8 were to be had")
        assert x.add_(1).sum() == 8 << 20
        """,
        FLAGOS_HOST_MEMORY="64MiB",
    )


def test_wrong_fractions_are_refused() -> None:
    for wrong in (1, "0.5", None):
        with pytest.raises(TypeError, match="must be a float"):
            flagos.set_per_process_memory_fraction(wrong)
    for wrong in (-0.1, 1.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="Allowed range: 0~1"):
            flagos.set_per_process_memory_fraction(wrong)
    with pytest.raises(RuntimeError, match="Invalid flagos device index 9"):
        flagos.set_per_process_memory_fraction(0.5, 9)
    with pytest.raises(ValueError, match="Expected a flagos device"):
        flagos.get_per_process_memory_fraction("cpu")


def test_without_the_cache_memory_goes_back_at_once() -> None:
    output_of_child(
        """
        import torch, torch_fl
        flagos = torch.flagos
        x = torch.empty(8 << 20, dtype=torch.uint8, device="flagos"); del x
        assert flagos.memory_reserved() >= 8 << 20
        with flagos.caching_allocator_disabled():
            assert flagos.memory_reserved() == 0, "what was cached has gone too"
            large, small = torch.ones(8 << 20, device="flagos"), torch.ones(8, device="flagos")
            assert (large.sum() + small.sum()).item() == (8 << 20) + 8
            del large, small
            assert flagos.memory_reserved() == 0
        x = torch.empty(8 << 20, dtype=torch.uint8, device="flagos"); del x
        assert flagos.memory_reserved() >= 8 << 20
        flagos.caching_allocator_enable(False)
        assert flagos.memory_reserved() == 0
        with flagos.caching_allocator_disabled(): pass
        x = torch.empty(8 << 20, dtype=torch.uint8, device="flagos"); del x
        assert flagos.memory_reserved() == 0, "the context restores what was before"
        flagos.caching_allocator_enable()
        """
    )


def test_memory_without_a_tensor() -> None:
    before = flagos.memory_allocated()
    address = flagos.caching_allocator_alloc(3 * MIB)
    assert address % 64 == 0
    assert flagos.memory_allocated() == before + 3 * MIB
    other = flagos.caching_allocator_alloc(100, "flagos:0", flagos.Stream())
    assert other not in range(address, address + 3 * MIB)
    flagos.caching_allocator_delete(address)
    with pytest.raises(ValueError, match="no memory from caching_allocator_alloc"):
        flagos.caching_allocator_delete(address)
    flagos.caching_allocator_delete(other)
    assert flagos.memory_allocated() == before
    assert flagos.caching_allocator_alloc(0) == 0
    flagos.caching_allocator_delete(0)
    with pytest.raises(TypeError, match="native handle"):
        flagos.caching_allocator_alloc(1, stream="default")
    with pytest.raises(NotImplementedError, match="no native streams"):
        flagos.caching_allocator_alloc(1, stream=17)
    with pytest.raises(torch.OutOfMemoryError):
        flagos.caching_allocator_alloc(1 << 60)
    with pytest.raises(RuntimeError, match="Invalid flagos device index 9"):
        flagos.caching_allocator_alloc(1, 9)


def test_statistics_of_pinned_memory_follow_it() -> None:
    flagos.reset_peak_host_memory_stats()
    before = flagos.host_memory_stats()
    pinned = torch.empty(3 * MIB, dtype=torch.uint8, pin_memory=True)
    now = flagos.host_memory_stats()
    assert now["active_bytes.current"] == before["active_bytes.current"] + 3 * MIB
    assert now["active_requests.current"] == before["active_requests.current"] + 1
    assert now["allocated_bytes.current"] >= now["active_bytes.current"]
    assert list(now) == sorted(now)
    del pinned
    after = flagos.host_memory_stats()
    assert after["active_bytes.current"] == before["active_bytes.current"]
    assert after["active_bytes.peak"] == now["active_bytes.current"]
    nested = flagos.host_memory_stats_as_nested_dict()
    assert nested["active_bytes"]["peak"] == after["active_bytes.peak"]
    assert set(nested) == {
        "active_bytes",
        "active_requests",
        "allocated_bytes",
        "allocations",
        "host_alloc_time",
        "host_free_time",
        "num_host_alloc",
        "num_host_free",
    }
    flagos.reset_peak_host_memory_stats()
    flagos.reset_accumulated_host_memory_stats()
    reset = flagos.host_memory_stats()
    assert reset["active_bytes.peak"] == reset["active_bytes.current"]
    assert reset["active_bytes.allocated"] == reset["num_host_alloc"] == 0


def test_sums_stand_beside_the_nested_names() -> None:
    keep = torch.ones(1000, device="flagos")
    stats = flagos.memory_stats()
    for flat, nested in (
        ("allocated_bytes", "allocated_bytes.all.current"),
        ("reserved_bytes", "reserved_bytes.all.current"),
        ("peak_allocated_bytes", "allocated_bytes.all.peak"),
        ("peak_reserved_bytes", "reserved_bytes.all.peak"),
        ("num_alloc_calls", "allocation.all.allocated"),
        ("num_free_calls", "allocation.all.freed"),
        ("num_device_malloc", "num_device_alloc"),
    ):
        assert stats[flat] == stats[nested], flat
    assert stats["num_alloc_calls"] - stats["num_free_calls"] == stats["allocation.all.current"] > 0
    assert stats["num_device_malloc"] >= 1
    assert stats["num_device_free"] >= 0
    assert stats["num_alloc_retries"] >= 0
    assert list(stats) == sorted(stats)
    nested = flagos.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["current"] == stats["allocated_bytes"]
    assert keep.numel() == 1000


def test_deprecated_names_still_work() -> None:
    with pytest.warns(FutureWarning, match="memory_reserved"):
        assert flagos.memory_cached() == flagos.memory_reserved()
    with pytest.warns(FutureWarning, match="max_memory_reserved"):
        assert flagos.max_memory_cached() == flagos.max_memory_reserved()
    torch.empty(4 * MIB, device="flagos")
    for reset in (flagos.reset_max_memory_allocated, flagos.reset_max_memory_cached):
        with pytest.warns(FutureWarning, match="resets all peaks"):
            reset(0)
        assert flagos.max_memory_allocated() == flagos.memory_allocated()
