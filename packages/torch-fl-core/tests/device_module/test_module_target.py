"""Owns: tests of what a delegating backend has a module of its own for: that it is asked, with
indices and streams of its device, and what is said where it is not there.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # in the process that has the pretend device, too

import fake_target
from pretend_device.loading import TYPE
from pretend_device.processes import on_pretend_device

NEEDS_A_MODULE = (
    ("CUDAGraph", ()),
    ("MemPool", ()),
    ("clock_rate", (0,)),
    ("cudart", ()),
    ("current_blas_handle", ()),
    ("current_solver_handle", ()),
    ("get_per_process_memory_fraction", (0,)),
    ("get_stream_from_external", (5,)),
    ("graph_pool_handle", ()),
    ("list_gpu_processes", (0,)),
    ("memory_usage", (0,)),
    ("power_draw", (0,)),
    ("set_per_process_memory_fraction", (0.5, 1)),
    ("set_sync_debug_mode", ("default",)),
    ("temperature", (0,)),
    ("utilization", (0,)),
)


@on_pretend_device
def test_without_a_module_the_plugin_is_named() -> None:
    flagos = torch.flagos
    for name, args in NEEDS_A_MODULE:
        with pytest.raises(NotImplementedError, match=r"pretend.* names no module") as caught:
            getattr(flagos, name)(*args)
        assert "hook torch_fl_target_module" in str(caught.value), name
    assert flagos.get_arch_list() == []
    assert flagos.get_gencode_flags() == ""
    assert flagos.get_allocator_backend() == "native"
    assert flagos.has_magma is False
    assert flagos.ipc_collect() is None
    assert flagos.get_sync_debug_mode() == 0
    assert flagos.Stream.priority_range() == (0, 0)
    assert flagos.can_device_access_peer(0, 1) is False
    assert flagos.is_current_stream_capturing() is False
    with pytest.raises(AttributeError, match="no attribute 'marks'"):
        flagos.marks  # noqa: B018


@on_pretend_device
def test_a_module_without_the_name_is_named() -> None:
    module = fake_target.install(TYPE)
    del module.temperature
    with pytest.raises(NotImplementedError, match=r"fake_target has no temperature\."):
        torch.flagos.temperature()


@on_pretend_device
def test_sensors_and_limits_are_asked_by_index() -> None:
    fake_target.install(TYPE)
    flagos = torch.flagos
    flagos.set_device(1)
    for name, answer in (
        ("utilization", 88),
        ("memory_usage", 12),
        ("temperature", 41),
        ("power_draw", 70_000),
        ("clock_rate", 1500),
        ("list_gpu_processes", "nobody"),
        ("get_per_process_memory_fraction", 0.25),
    ):
        for device, index in ((None, 1), ("flagos:0", 0), (torch.device("flagos", 1), 1), (0, 0)):
            assert getattr(flagos, name)(device) == answer
            assert fake_target.calls() == [(name, (index,), {})]
        with pytest.raises(RuntimeError, match="Invalid flagos device index 2"):
            getattr(flagos, name)(2)
        assert fake_target.calls() == []
    flagos.set_per_process_memory_fraction(0.5, "flagos:0")
    assert fake_target.calls() == [("set_per_process_memory_fraction", (0.5, 0), {})]
    assert flagos.can_device_access_peer(0, "flagos:1") is True
    assert fake_target.calls() == [("can_device_access_peer", (0, 1), {})]
    assert flagos.can_device_access_peer(1, 1) is False


@on_pretend_device
def test_properties_are_the_modules() -> None:
    fake_target.install(TYPE)
    flagos = torch.flagos
    properties = flagos.get_device_properties(1)
    assert (properties.name, flagos.get_device_name(1)) == ("Pretend 9000", "Pretend 9000")
    assert flagos.get_device_capability(0) == (9, 1)
    assert properties.total_memory == 123 << 20
    assert (properties.multi_processor_count, properties.warp_size) == (42, 64)
    assert properties.uuid == "1"
    assert properties.extra == {"shared_memory_per_block": 4096}
    assert flagos.get_arch_list() == ["arch_1", "arch_2"]
    assert flagos.get_gencode_flags() == "-arch 1"
    assert flagos.is_tf32_supported() is True
    assert flagos.has_magma is True
    assert flagos.Stream.priority_range() == (0, -5)


@on_pretend_device
def test_history_is_the_modules() -> None:
    fake_target.install(TYPE)
    memory = torch.flagos.memory
    memory._record_memory_history("state", max_entries=5, skip_actions=["alloc"])
    defaults = {"context": "all", "stacks": "all", "clear_history": False}
    assert fake_target.calls() == [
        (
            "_record_memory_history",
            ("state",),
            {**defaults, "max_entries": 5, "skip_actions": ["alloc"]},
        )
    ]
    memory._record_memory_history(False)
    (call,) = fake_target.calls()
    assert call[:2] == ("_record_memory_history", (None,))
    assert call[2] == {**defaults, "max_entries": sys.maxsize}
    assert memory._snapshot("flagos:1") == {"segments": [], "device_traces": []}
    assert memory._snapshot(0, augment_with_fx_traces=True)["segments"] == []
    assert memory.memory_snapshot() == memory.memory_snapshot((0, 3)) == ["segment"]
    assert fake_target.calls() == [
        ("_snapshot", (1,), {}),
        ("_snapshot", (0,), {"augment_with_fx_traces": True}),
        ("memory_snapshot", (), {}),
        ("memory_snapshot", ((0, 3),), {}),
    ]


@on_pretend_device
def test_pools_and_allocators_are_the_modules() -> None:
    module = fake_target.install(TYPE)
    flagos = torch.flagos
    pool = flagos.MemPool("allocator", no_split=True)
    assert type(pool) is module.MemPool
    with flagos.use_mem_pool(pool, "flagos:1"):
        pass
    with flagos.caching_allocator_disabled():
        pass
    flagos.caching_allocator_enable(False)
    assert flagos.get_allocator_backend() == "asynchronous"
    allocator = flagos.CUDAPluggableAllocator("a.so", "give", "take")
    assert type(allocator) is module.memory.CUDAPluggableAllocator
    flagos.change_current_allocator(allocator)
    assert [call for call in fake_target.calls() if call[0] != "get_allocator_backend"] == [
        ("MemPool", ("allocator",), {"use_on_oom": False, "no_split": True}),
        ("use_mem_pool", (pool, 1), {}),
        ("end of use_mem_pool", (), {}),
        ("caching_allocator_disabled", (), {}),
        ("end of caching_allocator_disabled", (), {}),
        ("caching_allocator_enable", (False,), {}),
        ("CUDAPluggableAllocator", ("a.so", "give", "take"), {}),
        ("change_current_allocator", (allocator,), {}),
    ]


@on_pretend_device
def test_memory_without_a_tensor_is_the_targets() -> None:
    flagos = torch.flagos
    before = flagos.memory_allocated(1)
    address = flagos.caching_allocator_alloc(1 << 20, "flagos:1")
    assert flagos.memory_allocated(1) >= before + (1 << 20)
    flagos.caching_allocator_delete(address)
    assert flagos.memory_allocated(1) == before


@on_pretend_device
def test_streams_of_other_libraries_become_flagos_streams() -> None:
    fake_target.install(TYPE)
    flagos = torch.flagos
    for make in (flagos.ExternalStream, flagos.get_stream_from_external):
        stream = make(77, "flagos:1")
        assert type(stream) is flagos.Stream
        assert (stream.stream_id, stream.device) == (77, torch.device("flagos:1"))
        assert fake_target.calls() == [("ExternalStream", (77,), {"device": 1})]


@on_pretend_device
def test_graphs_are_the_modules_and_record_its_streams() -> None:
    module = fake_target.install(TYPE)
    flagos = torch.flagos
    recorded = flagos.CUDAGraph(keep_graph=True)
    assert isinstance(recorded, module.CUDAGraph)
    stream = flagos.Stream("flagos:1")
    context = flagos.graph(recorded, pool=(0, 7), stream=stream, check_input_liveness=True)
    assert type(context) is module.graph
    assert flagos.graph_pool_handle() == (0, 7)
    sample = (torch.ones(2, device="flagos"),)
    assert flagos.make_graphed_callables(torch.sin, sample, pool=(0, 7)) == "graphed"
    made, graph, _, callables = fake_target.calls()
    assert made == ("CUDAGraph", (True,), {})
    assert graph[1] == (recorded,)
    passed = graph[2].pop("stream")
    assert graph[2] == {
        "pool": (0, 7),
        "capture_error_mode": "global",
        "check_input_liveness": True,
    }
    assert type(passed) is fake_target.Stream
    assert passed.device == torch.device(TYPE, 1)
    assert passed.stream_id == stream.stream_id
    assert callables[1] == (torch.sin, sample)
    flagos.graph(recorded)
    assert fake_target.calls()[0][2]["stream"] is None


@on_pretend_device
def test_libraries_and_waiting_are_the_modules() -> None:
    module = fake_target.install(TYPE)
    flagos = torch.flagos
    assert flagos.cudart() == "the runtime"
    assert flagos.current_blas_handle() == 0xB1A5
    assert flagos.current_solver_handle() == 0x501F
    assert flagos.get_sync_debug_mode() == 1
    fake_target.calls()
    flagos.set_sync_debug_mode("error")
    flagos.check_error(0)
    flagos.ipc_collect()
    flagos._sleep(100)
    assert fake_target.calls() == [
        ("set_sync_debug_mode", (2,), {}),
        ("check_error", (0,), {}),
        ("ipc_collect", (), {}),
        ("_sleep", (100,), {}),
    ]
    assert flagos.marks is module.marks, "its own submodules are reached under their names"
    for no_module in ("temperature_of_hell", "Properties"):
        with pytest.raises(AttributeError, match="no attribute"):
            getattr(flagos, no_module)


@pytest.mark.skipif(not hasattr(torch.accelerator, "Graph"), reason="came with torch 2.12")
@on_pretend_device
def test_a_target_without_graphs_says_so() -> None:
    with pytest.raises(
        (NotImplementedError, RuntimeError), match=r"no torch\.accelerator\.Graph for"
    ):
        torch.accelerator.Graph()
