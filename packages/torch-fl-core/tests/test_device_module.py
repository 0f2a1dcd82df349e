"""Owns: tests of torch.flagos itself: start, forks, current device, properties, mixed precision."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from children import output_of_child

import torch_fl
import torch_fl.flagos

flagos = torch.flagos

OTHER_TYPES = ["cpu", "cuda:0", torch.device("meta")]
TAKE_A_DEVICE = {
    "set_device": flagos.set_device,
    "synchronize": flagos.synchronize,
    "get_device_name": flagos.get_device_name,
    "get_device_properties": flagos.get_device_properties,
    "get_device_capability": flagos.get_device_capability,
    "current_stream": flagos.current_stream,
    "default_stream": flagos.default_stream,
    "Stream": flagos.Stream,
    "device": lambda device: flagos.device(device).__enter__(),
    "can_device_access_peer": lambda device: flagos.can_device_access_peer(0, device),
    "get_rng_state": flagos.get_rng_state,
    "mem_get_info": flagos.mem_get_info,
    "memory_allocated": flagos.memory_allocated,
}


def test_module_is_reachable_by_every_name() -> None:
    assert torch.flagos is torch_fl.flagos
    assert torch.get_device_module("flagos:0") is torch.flagos
    assert torch.get_device_module() is torch.flagos
    missing = [name for name in flagos.__all__ if not hasattr(flagos, name)]
    assert missing == []


def test_submodules_imported_by_the_torch_name_share_their_state() -> None:
    output_of_child(
        """
        import torch, torch_fl
        from torch.flagos.amp import autocast
        from torch.flagos.random import default_generators
        from torch.flagos.streams import Stream
        assert Stream is torch.flagos.Stream
        assert autocast is torch.flagos.amp.autocast
        assert default_generators is torch.flagos.default_generators
        """
    )


def test_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        flagos.no_such_name  # noqa: B018


def test_it_is_the_accelerator() -> None:
    assert flagos.is_available() is True
    assert torch.accelerator.device_count() == flagos.device_count() >= 1
    assert torch.accelerator.current_accelerator() == torch.device("flagos")
    assert torch.accelerator.current_device_index() == flagos.current_device()


@pytest.mark.parametrize(("setting", "count"), [(None, 1), ("1", 1), ("3", 3)])
def test_host_device_count_is_set_by_the_environment(setting: str | None, count: int) -> None:
    code = "import torch, torch_fl; print(torch.flagos.device_count())"
    assert output_of_child(code, FLAGOS_HOST_DEVICES=setting).split() == [str(count)]


def test_asking_and_seeding_start_nothing_and_a_tensor_starts_it() -> None:
    output_of_child(
        """
        import torch, torch_fl
        flagos = torch.flagos
        torch.manual_seed(3); flagos.manual_seed(4); flagos.seed_all(); flagos.manual_seed_all(5)
        assert flagos.is_available() and flagos.device_count() == 1
        assert flagos.memory_allocated() == 0 and len(flagos.default_generators) == 1
        flagos.empty_cache(); flagos.reset_peak_memory_stats()
        assert torch.accelerator.current_accelerator().type == "flagos"
        with flagos.device(None), flagos.device(-1):
            pass
        assert not flagos.is_initialized() and flagos._initialized is False
        torch.ones(1, device="flagos")
        assert flagos.is_initialized() and flagos._initialized is True
        flagos.init()
        assert flagos.is_initialized()
        """
    )


def test_threads_that_start_it_together_all_see_the_waiting_seed() -> None:
    output_of_child(
        """
        import threading, torch, torch_fl
        torch.manual_seed(11)
        gate, states = threading.Barrier(8), []
        def work():
            gate.wait()
            states.append(torch.flagos.get_rng_state())
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        torch.flagos.manual_seed_all(11)
        expected = torch.flagos.get_rng_state()
        assert len(states) == 8 and all(torch.equal(state, expected) for state in states)
        """
    )


FORK = """
import os, sys, traceback
import torch, torch_fl

def in_forked_child(work):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""


def test_a_forked_child_cannot_go_on_with_its_parents_tensors() -> None:
    output_of_child(
        FORK
        + """
x = torch.ones(3, device="flagos")
module = torch.nn.Linear(3, 3).to("flagos")

def work():
    for use in (lambda: x + 1, lambda: x.add_(1), x.cpu, x.tolist, lambda: module(x)):
        try:
            use()
        except RuntimeError as error:
            assert "forked subprocess" in str(error) and "'spawn' start method" in str(error), error
        else:
            raise AssertionError("it went on")
    assert torch.ones(2).sum().item() == 2

in_forked_child(work)
assert x.tolist() == [1, 1, 1]
"""
    )


def test_forked_children_may_free_what_they_inherit() -> None:
    """Whatever another thread does at that moment: its locks are given back in the child too."""
    output_of_child(
        """
import os, signal, threading, time, warnings
import torch, torch_fl
warnings.simplefilter("ignore")
inherited = [torch.ones(16, device="flagos"), torch.ones(1 << 20, device="flagos")]
pinned = [torch.ones(64).pin_memory()]
stop = False

def work():
    y = torch.ones(64, device="flagos")
    while not stop:
        torch.add(y, y)
        torch.ones(1 << 20, device="flagos")
        torch.flagos.empty_cache()
        y.cpu().pin_memory()

threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(60):
    pid = os.fork()
    if pid == 0:
        inherited.clear()
        pinned.clear()
        os._exit(0)
    deadline = time.monotonic() + 20
    while not os.waitpid(pid, os.WNOHANG)[0]:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            stop = True
            raise AssertionError("the child hangs")
        time.sleep(0.002)
stop = True
for thread in threads:
    thread.join()
"""
    )


def test_a_child_forked_before_the_start_may_use_it() -> None:
    output_of_child(
        FORK
        + """
def work():
    assert not torch.flagos._is_in_bad_fork()
    assert torch.ones(3, device="flagos").sum().item() == 3

in_forked_child(work)
assert torch.ones(4, device="flagos").sum().item() == 4
"""
    )


def test_a_child_forked_after_the_start_is_refused_and_keeps_the_cpu() -> None:
    output_of_child(
        FORK
        + """
torch.ones(1, device="flagos")

def work():
    flagos = torch.flagos
    assert flagos._is_in_bad_fork() and not flagos.is_initialized() and not flagos._initialized
    assert flagos.memory_allocated() == 0
    torch.manual_seed(1); flagos.manual_seed(1)
    starts = (flagos.init, flagos.synchronize, flagos.current_stream, flagos.get_rng_state,
              lambda: torch.ones(1, device="flagos"))
    for start in starts:
        try:
            start()
        except RuntimeError as error:
            assert str(error).startswith(
                "Cannot re-initialize flagos in forked subprocess. To use flagos with "
                "multiprocessing, you must use the 'spawn' start method"), error
        else:
            raise AssertionError(f"{start} was not refused")
    assert torch.ones(3).sum().item() == 3

in_forked_child(work)
assert torch.ones(4, device="flagos").sum().item() == 4
"""
    )


def test_current_device_and_its_context() -> None:
    output_of_child(
        """
        import torch, torch_fl
        flagos = torch.flagos
        assert flagos.current_device() == 0
        for one in (1, "flagos:1", torch.device("flagos", 1)):
            flagos.set_device(one)
            assert flagos.current_device() == torch.accelerator.current_device_index() == 1
            assert torch.empty(1, device="flagos").device.index == 1
            flagos.set_device(-1)
            assert flagos.current_device() == 1, "a negative index changes nothing"
            flagos.set_device(0)
            with flagos.device(one):
                assert flagos.current_device() == 1
                assert torch.empty(1, device="flagos").device.index == 1
                with flagos.device(0):
                    assert flagos.current_device() == 0
                for nothing in (None, -1, "flagos"):
                    with flagos.device(nothing):
                        assert flagos.current_device() == 1
                assert flagos.current_device() == 1
            assert flagos.current_device() == 0
        again = flagos.device(1)
        with again, flagos.device(0), again:
            assert flagos.current_device() == 1
        assert flagos.current_device() == 0
        try:
            with flagos.device(1):
                raise KeyError
        except KeyError:
            pass
        assert flagos.current_device() == 0, "restored after an exception"
        assert flagos._exchange_device(1) == 0 and flagos._exchange_device(-1) == -1
        assert flagos._maybe_exchange_device(-1) == -1 and flagos.current_device() == 1
        assert flagos._maybe_exchange_device(0) == 1 and flagos.current_device() == 0
        """,
        FLAGOS_HOST_DEVICES="2",
    )


def test_device_of_follows_tensors_and_storages() -> None:
    output_of_child(
        """
        import torch, torch_fl
        flagos = torch.flagos
        there = torch.ones(2, device="flagos:1")
        for thing in (there, there.untyped_storage()):
            with flagos.device_of(thing):
                assert flagos.current_device() == 1
            assert flagos.current_device() == 0
        flagos.set_device(1)
        with flagos.device_of(torch.ones(2)):
            assert flagos.current_device() == 1, "a host tensor changes nothing"
        """,
        FLAGOS_HOST_DEVICES="2",
    )


def test_the_current_device_belongs_to_the_thread() -> None:
    output_of_child(
        """
        import threading, torch, torch_fl
        flagos, seen = torch.flagos, []
        flagos.set_device(1)
        def work():
            seen.append(flagos.current_device())
            with flagos.device(1):
                seen.append(flagos.current_device())
        thread = threading.Thread(target=work); thread.start(); thread.join()
        assert seen == [0, 1], seen
        assert flagos.current_device() == 1
        """,
        FLAGOS_HOST_DEVICES="2",
    )


@pytest.mark.parametrize("name", TAKE_A_DEVICE)
def test_an_index_that_does_not_exist_names_the_count(name: str) -> None:
    count = flagos.device_count()
    for missing in (count, count + 90, f"flagos:{count}"):
        with pytest.raises(RuntimeError, match=rf"index {count}|index {count + 90}") as caught:
            TAKE_A_DEVICE[name](missing)
        assert f"{count} device" in str(caught.value)
    assert flagos.current_device() == 0
    assert torch.ones(3, device="flagos").sum().item() == 3


@pytest.mark.parametrize("other", OTHER_TYPES)
@pytest.mark.parametrize("name", TAKE_A_DEVICE)
def test_another_device_type_is_refused_with_what_was_expected(
    name: str, other: str | torch.device
) -> None:
    with pytest.raises(ValueError, match="Expected a flagos device"):
        TAKE_A_DEVICE[name](other)


def test_where_an_index_is_needed_no_index_is_refused() -> None:
    for without in ("flagos", torch.device("flagos"), None):
        with pytest.raises(ValueError, match="with an index"):
            flagos.set_device(without)
        with pytest.raises(ValueError, match="with an index"):
            flagos.can_device_access_peer(0, without)


def test_synchronize_takes_every_form() -> None:
    for device in (None, 0, "flagos", "flagos:0", torch.device("flagos", 0)):
        assert flagos.synchronize(device) is None


def test_properties_describe_the_device() -> None:
    properties = flagos.get_device_properties()
    assert properties == flagos.get_device_properties("flagos:0")
    assert properties.name == flagos.get_device_name(0) != ""
    assert (properties.major, properties.minor) == flagos.get_device_capability("flagos")
    assert properties.multi_processor_count >= 1
    assert properties.total_memory == flagos.mem_get_info()[1] > 0
    assert hash(properties) == hash(flagos.get_device_properties(0))
    with pytest.raises(dataclasses.FrozenInstanceError):
        properties.name = "another"


def test_total_memory_follows_the_limit_of_the_host_backend() -> None:
    code = "import torch, torch_fl; print(torch.flagos.get_device_properties(0).total_memory)"
    assert int(output_of_child(code, FLAGOS_HOST_MEMORY="64MiB")) == 64 << 20


def test_host_devices_reach_one_another_but_a_device_is_no_peer_of_itself() -> None:
    output_of_child(
        """
        import torch, torch_fl
        reach = torch.flagos.can_device_access_peer
        assert reach(0, 1) is True and reach("flagos:1", torch.device("flagos", 0)) is True
        assert reach(0, 0) is False and reach(1, 1) is False
        """,
        FLAGOS_HOST_DEVICES="2",
    )


def test_supported_low_precisions() -> None:
    assert set(flagos.get_amp_supported_dtype()) == {torch.float16, torch.bfloat16}
    assert flagos.is_bf16_supported() is True
    assert flagos.amp.is_bf16_supported(including_emulation=False) is True


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_of_the_module(dtype: torch.dtype) -> None:
    a = torch.randn(4, 4, device="flagos")
    with flagos.amp.autocast(dtype=dtype):
        assert torch.is_autocast_enabled("flagos")
        assert (a @ a).dtype == dtype
        with flagos.amp.autocast(enabled=False):
            assert (a @ a).dtype == torch.float32
        assert (a @ a).dtype == dtype
    assert (a @ a).dtype == torch.float32
    decorated = flagos.amp.autocast(dtype=dtype)(lambda x: x @ x)
    assert decorated(a).dtype == dtype


def test_custom_function_follows_autocast() -> None:
    seen = {}

    class Matmul(torch.autograd.Function):
        @staticmethod
        @flagos.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x @ x

        @staticmethod
        @flagos.amp.custom_bwd
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            seen["autocast"] = torch.is_autocast_enabled("flagos")
            return grad @ x.t() + x.t() @ grad

    x = torch.randn(3, 3, device="flagos", requires_grad=True)
    with torch.autocast("flagos", dtype=torch.bfloat16):
        y = Matmul.apply(x)
    assert y.dtype == torch.float32
    y.sum().backward()
    assert seen == {"autocast": False}


def test_grad_scaler_skips_a_step_with_infinite_gradients_and_scales_down() -> None:
    weight = torch.ones(2, device="flagos", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler = flagos.amp.GradScaler(init_scale=4.0, growth_interval=1)
    scaler.scale((weight * 3).sum()).backward()
    assert weight.grad.tolist() == [12.0, 12.0]
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [-0.5, -0.5]
    assert scaler.get_scale() == 8.0

    optimizer.zero_grad()
    scaler.scale((weight * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [-0.5, -0.5]
    assert scaler.get_scale() == 4.0
