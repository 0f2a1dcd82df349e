"""Owns: tests of device memory: statistics follow tensors, limits hold, asking starts nothing."""

from __future__ import annotations

import gc

import pytest
import torch
from children import output_of_child

import torch_fl  # noqa: F401  (makes the device)

flagos = torch.flagos
MIB = 1 << 20


def _new(mib: int, device: str = "flagos") -> torch.Tensor:
    return torch.empty(mib * MIB, dtype=torch.uint8, device=device)


@pytest.fixture(autouse=True)
def _no_garbage() -> None:
    gc.collect()


def test_before_the_first_use_everything_is_zero_and_wrong_devices_are_still_refused() -> None:
    output_of_child(
        """
        import torch, torch_fl
        flagos = torch.flagos
        for ask in (flagos.memory_allocated, flagos.max_memory_allocated, flagos.memory_reserved,
                    flagos.max_memory_reserved):
            for device in (None, 0, "flagos", "flagos:1", torch.device("flagos", 1)):
                assert ask(device) == 0
        assert flagos.memory_stats() == {} and flagos.memory_stats_as_nested_dict(1) == {}
        assert "flagos:1" in flagos.memory_summary(1)
        flagos.empty_cache()
        flagos.reset_peak_memory_stats()
        flagos.reset_accumulated_memory_stats("flagos:1")
        for device, expected in ((2, RuntimeError), (-1, RuntimeError), ("cpu", ValueError)):
            try:
                flagos.memory_allocated(device)
            except expected:
                continue
            raise AssertionError(f"{device} was not refused")
        assert not flagos.is_initialized()
        free, total = flagos.mem_get_info()
        assert 0 < free <= total and flagos.is_initialized()
        """,
        FLAGOS_HOST_DEVICES="2",
    )


def test_allocated_follows_storages_and_not_views() -> None:
    before = flagos.memory_allocated()
    tensor = _new(4)
    with_tensor = flagos.memory_allocated()
    assert 4 * MIB <= with_tensor - before <= 5 * MIB
    view = tensor[10:]
    assert flagos.memory_allocated() == with_tensor
    del tensor
    assert flagos.memory_allocated() == with_tensor
    del view
    assert flagos.memory_allocated() == before


def test_an_empty_tensor_occupies_nothing() -> None:
    before = flagos.memory_allocated()
    empty = torch.empty(0, 5, device="flagos")
    assert flagos.memory_allocated() == before
    assert empty.numel() == 0


def test_peak_remembers_what_was_freed_until_it_is_reset() -> None:
    flagos.reset_peak_memory_stats()
    before = flagos.max_memory_allocated()
    assert before == flagos.memory_allocated()
    tensor = _new(8)
    del tensor
    assert 8 * MIB <= flagos.max_memory_allocated() - before <= 9 * MIB
    assert flagos.max_memory_reserved() >= flagos.max_memory_allocated()
    flagos.reset_peak_memory_stats()
    assert flagos.max_memory_allocated() == before


def test_reserved_covers_allocated_and_the_cache_can_be_given_back() -> None:
    tensor = _new(16)
    full = flagos.memory_reserved()
    assert full >= flagos.memory_allocated() >= 16 * MIB
    del tensor
    flagos.empty_cache()
    assert flagos.memory_allocated() <= flagos.memory_reserved() <= full - 16 * MIB


def test_historical_sums_grow_and_can_be_reset() -> None:
    flagos.reset_accumulated_memory_stats()
    stats = flagos.memory_stats()
    assert stats["allocated_bytes.all.allocated"] == stats["allocated_bytes.all.freed"] == 0
    for _ in range(3):
        _new(1)
    stats = flagos.memory_stats()
    assert stats["allocated_bytes.all.allocated"] >= 3 * MIB
    assert stats["allocated_bytes.all.freed"] >= 3 * MIB
    assert stats["allocation.all.allocated"] >= 3
    flagos.reset_accumulated_memory_stats()
    assert flagos.memory_stats()["allocated_bytes.all.allocated"] == 0
    assert flagos.memory_stats()["allocated_bytes.all.current"] == flagos.memory_allocated()


def test_statistics_have_the_names_of_cuda_and_agree_with_one_another() -> None:
    tensor = _new(2)
    stats = flagos.memory_stats()
    assert list(stats) == sorted(stats)
    for metric in ("allocated_bytes", "reserved_bytes", "active_bytes", "allocation", "segment"):
        for column in ("current", "peak", "allocated", "freed"):
            assert stats[f"{metric}.all.{column}"] >= 0
    nested = flagos.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["current"] == flagos.memory_allocated() >= 2 * MIB
    assert nested["num_ooms"] == stats["num_ooms"]

    def leaves(level: dict) -> int:
        return sum(leaves(x) if isinstance(x, dict) else 1 for x in level.values())

    # Beside the nested names stand sums under one name each.
    assert leaves(nested) == len(torch.accelerator.memory_stats()) < len(stats)
    assert torch.accelerator.memory_stats().items() <= stats.items()
    assert tensor.numel() == 2 * MIB


@pytest.mark.parametrize(
    "name",
    ["memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"],
)
def test_figures_take_every_form_of_device_and_agree_with_the_accelerator(name: str) -> None:
    tensor = _new(1)
    ask = getattr(flagos, name)
    forms = (None, 0, "flagos", "flagos:0", torch.device("flagos"), torch.device("flagos", 0))
    assert {ask(device) for device in forms} == {getattr(torch.accelerator, name)()}
    assert ask() >= MIB
    assert tensor.numel() == MIB


@pytest.mark.parametrize(
    "ask",
    [
        flagos.memory_stats,
        flagos.memory_allocated,
        flagos.max_memory_reserved,
        flagos.reset_peak_memory_stats,
        flagos.reset_accumulated_memory_stats,
        flagos.mem_get_info,
        flagos.memory_summary,
    ],
)
def test_wrong_devices_are_refused(ask) -> None:
    for other in ("cpu", "cuda", torch.device("meta")):
        with pytest.raises(ValueError, match="Expected a flagos device"):
            ask(other)
    for missing in (flagos.device_count(), -1, "flagos:99"):
        with pytest.raises(RuntimeError, match=f"{flagos.device_count()} device"):
            ask(missing)


def test_devices_are_counted_apart() -> None:
    output_of_child(
        """
        import torch, torch_fl
        flagos = torch.flagos
        x = torch.empty(1 << 20, dtype=torch.uint8, device="flagos:1")
        assert flagos.memory_allocated(1) >= 1 << 20 and flagos.memory_allocated(0) == 0
        with flagos.device(1):
            assert flagos.memory_allocated() == flagos.memory_allocated("flagos:1")
        y = x.to("flagos:0")
        assert flagos.memory_allocated(0) >= 1 << 20
        del x
        assert flagos.memory_allocated(1) == 0 and flagos.memory_allocated(0) >= 1 << 20
        flagos.reset_peak_memory_stats(1)
        assert flagos.max_memory_allocated(1) == 0 and flagos.max_memory_allocated(0) >= 1 << 20
        """,
        FLAGOS_HOST_DEVICES="2",
    )


def test_the_limit_is_an_out_of_memory_error_with_sizes_and_the_device_lives_on() -> None:
    output_of_child(
        r"""
        import re, torch, torch_fl
        flagos, MIB = torch.flagos, 1 << 20
        assert flagos.mem_get_info() == (64 * MIB, 64 * MIB)
        keep = torch.ones(16 * MIB, dtype=torch.uint8, device="flagos")
        free, total = flagos.mem_get_info()
        assert total == 64 * MIB and free <= 48 * MIB
        for too_much in (256, 60):  # more than there is, and more than is left
            try:
                torch.empty(too_much * MIB, dtype=torch.uint8, device="flagos")
            except torch.OutOfMemoryError as error:
                text = str(error)
                assert isinstance(error, flagos.OutOfMemoryError)
                assert re.search(rf"\b{too_much}(\.0+)? ?MiB", text), text
                assert re.search(r"\b64(\.0+)? ?MiB", text), text
            else:
                raise AssertionError(f"{too_much} MiB fitted into 64 MiB")
        assert flagos.memory_stats()["num_ooms"] == 2
        assert keep.min().item() == keep.max().item() == 1, "what was there is untouched"
        assert (torch.ones(1000, device="flagos") * 2).sum().item() == 2000
        del keep
        whole = torch.empty(60 * MIB, dtype=torch.uint8, device="flagos")
        assert whole.numel() == 60 * MIB, "freed memory can be used again"
        """,
        FLAGOS_HOST_MEMORY="64MiB",
    )


def test_cached_memory_does_not_stand_in_the_way_of_a_large_request() -> None:
    output_of_child(
        """
        import torch, torch_fl
        blocks = [torch.empty(1 << 20, dtype=torch.uint8, device="flagos") for _ in range(50)]
        del blocks
        assert torch.empty(60 << 20, dtype=torch.uint8, device="flagos").numel() == 60 << 20
        """,
        FLAGOS_HOST_MEMORY="64MiB",
    )


def test_each_host_device_has_the_limit_for_itself() -> None:
    output_of_child(
        """
        import torch, torch_fl
        both = [torch.empty(48 << 20, dtype=torch.uint8, device=f"flagos:{i}") for i in (0, 1)]
        assert [torch.flagos.memory_allocated(i) >= 48 << 20 for i in (0, 1)] == [True, True]
        """,
        FLAGOS_HOST_MEMORY="64MiB",
        FLAGOS_HOST_DEVICES="2",
    )


def test_summary_shows_the_figures() -> None:
    tensor = _new(32)
    text = flagos.memory_summary()
    ooms = flagos.memory_stats()["num_ooms"]
    assert text.startswith(f"Memory of flagos:0: {ooms} out-of-memory errors, ")
    (allocated,) = (line for line in text.splitlines() if line.startswith("Allocated memory"))
    assert f"{flagos.memory_allocated() / MIB:.1f} MiB" in allocated
    assert "large pool" in text
    assert "large pool" not in flagos.memory_summary(abbreviated=True)
    assert len({len(line) for line in text.splitlines()[1:]}) == 1, "the columns are aligned"
    assert tensor.numel() == 32 * MIB
