"""Owns: tests of what the host backend answers where it has no such thing: an error that says why
and what to do, or the answer that is true there.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import torch
from children import output_of_child

import torch_fl  # noqa: F401  (makes the device)

if TYPE_CHECKING:
    from collections.abc import Callable

flagos = torch.flagos

# What is called, and what its message must tell.
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "CUDAGraph": (flagos.CUDAGraph, "Call the function itself"),
    "CUDAPluggableAllocator": (
        lambda: flagos.CUDAPluggableAllocator("allocator.so", "give", "take"),
        "FLAGOS_HOST_MEMORY",
    ),
    "ExternalStream": (lambda: flagos.ExternalStream(1), "Use torch.flagos.Stream"),
    "MemPool": (flagos.MemPool, "leave it out"),
    "change_current_allocator": (
        lambda: flagos.change_current_allocator(None),
        "cannot be exchanged",
    ),
    "check_error": (lambda: flagos.check_error(2), "errors are exceptions"),
    "clock_rate": (flagos.clock_rate, "Ask the operating system"),
    "cudart": (flagos.cudart, "no handle"),
    "current_blas_handle": (flagos.current_blas_handle, "no handle"),
    "current_solver_handle": (flagos.current_solver_handle, "no handle"),
    "get_stream_from_external": (lambda: flagos.get_stream_from_external(1, 0), "no native"),
    "graph": (lambda: flagos.graph(None), "Call the function itself"),
    "graph_pool_handle": (flagos.graph_pool_handle, "nothing to record"),
    "make_graphed_callables": (
        lambda: flagos.make_graphed_callables(torch.nn.Linear(1, 1), (torch.ones(1),)),
        "nothing to record",
    ),
    "memory_usage": (lambda: flagos.memory_usage(0), "no such sensor"),
    "power_draw": (lambda: flagos.power_draw("flagos"), "no such sensor"),
    "set_sync_debug_mode": (lambda: flagos.set_sync_debug_mode("error"), 'Use "default"'),
    "temperature": (flagos.temperature, "no such sensor"),
    "use_mem_pool": (lambda: flagos.use_mem_pool(None).__enter__(), "leave it out"),
    "utilization": (flagos.utilization, "no such sensor"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_host_does_not_have_says_why(name: str) -> None:
    call, tells = REFUSED[name]
    with pytest.raises(NotImplementedError, match="the host backend") as caught:
        call()
    assert "torch.flagos." in str(caught.value)
    assert tells in str(caught.value)


def test_an_event_outside_graphs_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="external=True"):
        flagos.Event(external=True)


def test_sensors_refuse_a_wrong_device_before_anything_else() -> None:
    for read in (flagos.utilization, flagos.temperature, flagos.list_gpu_processes):
        with pytest.raises(RuntimeError, match="Invalid flagos device index 99"):
            read(99)
        with pytest.raises(ValueError, match="Expected a flagos device"):
            read("cpu")


def test_what_is_true_of_the_host() -> None:
    assert flagos.get_arch_list() == []
    assert flagos.get_gencode_flags() == ""
    assert flagos.is_tf32_supported() is False
    assert flagos.has_half is True
    assert flagos.has_magma is False
    assert flagos.is_current_stream_capturing() is False
    assert flagos.get_allocator_backend() == "native"
    assert flagos.ipc_collect() is None
    assert flagos.check_error(0) is None
    assert flagos.Stream.priority_range() == (0, -1)
    assert flagos.amp.amp_definitely_not_available() is False
    assert flagos.OutOfMemoryError is torch.OutOfMemoryError
    assert flagos.AcceleratorError is torch.AcceleratorError


def test_waiting_is_the_default_and_nothing_else() -> None:
    for default in (0, "default"):
        flagos.set_sync_debug_mode(default)
    assert flagos.get_sync_debug_mode() == 0
    for wrong in ("loud", 3, -1):
        with pytest.raises(RuntimeError, match="invalid value of debug_mode"):
            flagos.set_sync_debug_mode(wrong)


def test_sleeping_takes_the_time_that_was_asked_for() -> None:
    start = time.perf_counter()
    flagos._sleep(20_000_000)
    assert time.perf_counter() - start >= 0.02


def test_processes_are_this_one_while_it_holds_memory() -> None:
    output_of_child(
        """
        import os, torch, torch_fl
        flagos = torch.flagos
        flagos.init()
        assert flagos.list_gpu_processes(1) == "flagos:1\\nno processes are running"
        x = torch.ones(1 << 20, device="flagos:1")
        text = flagos.list_gpu_processes("flagos:1")
        assert text.startswith("flagos:1\\nprocess ") and str(os.getpid()) in text, text
        assert "4.000 MB" in text, text
        assert flagos.device_memory_used(1) == flagos.memory_reserved(1) >= 4 << 20
        assert flagos.device_memory_used(0) == 0
        """,
        FLAGOS_HOST_DEVICES="2",
    )


def test_modules_of_a_backend_are_no_attributes_here() -> None:
    for name in ("nvtx", "no_such_module", "_private"):
        with pytest.raises(AttributeError, match=rf"'torch.flagos' has no attribute '{name}'"):
            getattr(flagos, name)


def test_asking_starts_nothing() -> None:
    output_of_child(
        """
        import torch, torch_fl
        flagos = torch.flagos
        assert flagos.memory_snapshot() == [] and not flagos.is_current_stream_capturing()
        assert flagos.get_arch_list() == [] and flagos.get_allocator_backend() == "native"
        flagos.caching_allocator_enable(True)
        assert flagos.list_gpu_processes() and flagos.memory_stats() == {}
        assert not flagos.is_initialized()
        """
    )
