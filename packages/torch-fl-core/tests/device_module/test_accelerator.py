"""Owns: tests of torch.accelerator: every public function, with one and with two devices."""

from __future__ import annotations

import pytest
import torch
from children import output_of_child

import torch_fl  # noqa: F401  (makes the device)

accelerator = torch.accelerator
WITH_ONE = "Invalid flagos device index {}: 1 device available (only 0)"
WITH_TWO = "Invalid flagos device index {}: 2 devices available (0 to 1)"

EVERYTHING = """
import threading, torch, torch_fl
acc, flagos = torch.accelerator, torch.flagos
count = acc.device_count()
used = set(acc.__all__)

def use(name):
    used.discard(name)
    return getattr(acc, name)

assert use("device_count")() == flagos.device_count() == COUNT
assert use("is_available")() is True
assert use("current_accelerator")() == torch.device("flagos")
assert acc.current_accelerator(check_available=True) == torch.device("flagos")
assert use("memory_stats")() is not None and acc.memory_allocated() == 0
last = count - 1
for one in (last, f"flagos:{last}", torch.device("flagos", last)):
    use("set_device_index")(one)
    assert use("current_device_index")() == flagos.current_device() == last
    acc.set_device_index(0)
import warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    use("set_device_idx")(last)
    assert use("current_device_idx")() == last
    acc.set_device_idx(0)
with use("device_index")(last):
    assert torch.empty(1, device="flagos").device.index == last
    with acc.device_index(None):
        assert acc.current_device_index() == last
    with acc.device_index(0):
        assert acc.current_device_index() == 0
assert acc.current_device_index() == 0
try:
    with acc.device_index(last):
        raise KeyError
except KeyError:
    assert acc.current_device_index() == 0

capability = use("get_device_capability")(last)
assert torch.float32 in capability["supported_dtypes"]
stream = torch.Stream(f"flagos:{last}")
before = use("current_stream")(last)
use("set_stream")(stream)
assert acc.current_stream(last) == flagos.current_stream(last) == stream
assert acc.current_device_index() == last, "setting a stream makes its device current"
acc.set_stream(before)
acc.set_device_index(0)
for device in (None, last, f"flagos:{last}"):
    assert use("synchronize")(device) is None

x = torch.ones(1 << 20, device=f"flagos:{last}")
for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
    figure = use(name)(last)
    assert figure == getattr(flagos, name)(last) >= 4 << 20, name
    assert getattr(acc.memory, name)(f"flagos:{last}") == figure
    if last:
        assert getattr(acc, name)(0) <= 1 << 20, name
free, total = use("get_memory_info")(last)
assert (free, total) == flagos.mem_get_info(last) and 0 < free < total
stats = acc.memory_stats(last)
assert stats["allocated_bytes.all.current"] == acc.memory_allocated(last)
assert stats.items() <= flagos.memory_stats(last).items()
del x
use("reset_peak_memory_stats")(last)
assert acc.max_memory_allocated(last) == acc.memory_allocated(last)
use("reset_accumulated_memory_stats")(last)
assert acc.memory_stats(last)["allocation.all.allocated"] == 0
use("empty_cache")()
assert acc.memory_reserved(last) <= 2 << 20
pinned = torch.empty(1 << 20, pin_memory=True); del pinned
if "empty_host_cache" in used:  # came with torch 2.12, as Graph did
    use("empty_host_cache")()
    assert flagos.host_memory_stats()["allocated_bytes.current"] == 0
if "Graph" in used:
    try:
        use("Graph")()
    except NotImplementedError as error:
        assert "The host backend has no graphs" in str(error), error
        assert "Call the function itself" in str(error), error
    else:
        raise AssertionError("the host has no graphs")

seen = []
def work():
    seen.append(acc.current_device_index())
    with acc.device_index(last): seen.append(acc.current_device_index())
thread = threading.Thread(target=work); thread.start(); thread.join()
assert seen == [0, last]
assert used == set(), f"not tried: {sorted(used)}"
"""


@pytest.mark.parametrize("count", [1, 2])
def test_every_public_function(count: int) -> None:
    code = EVERYTHING.replace("COUNT", str(count))
    output_of_child(code, FLAGOS_HOST_DEVICES=str(count))


INVALID = """
import torch, torch_fl
from torch_fl import _C
acc, flagos, x = torch.accelerator, torch.flagos, torch.ones(2, device="flagos")

def uses(bad):
    name = f"flagos:{bad}"
    return {
        "empty": lambda: torch.empty(1, device=name),
        "to": lambda: x.to(name),
        "flagos()": lambda: torch.ones(1).flagos(bad),
        "Generator": lambda: torch.Generator(name),
        "torch.Stream": lambda: torch.Stream(name),
        "accelerator.set_device_index": lambda: acc.set_device_index(bad),
        "accelerator.device_index": lambda: acc.device_index(bad).__enter__(),
        "accelerator.synchronize": lambda: acc.synchronize(bad),
        "accelerator.current_stream": lambda: acc.current_stream(bad),
        "accelerator.get_device_capability": lambda: acc.get_device_capability(bad),
        "accelerator.memory_stats": lambda: acc.memory_stats(bad),
        "accelerator.memory_allocated": lambda: acc.memory_allocated(bad),
        "accelerator.reset_peak_memory_stats": lambda: acc.reset_peak_memory_stats(bad),
        "accelerator.reset_accumulated_memory_stats":
            lambda: acc.reset_accumulated_memory_stats(bad),
        "accelerator.get_memory_info": lambda: acc.get_memory_info(bad),
        "load": lambda: x.untyped_storage().to(device=name),
        "module": lambda: torch.nn.Linear(1, 1).to(name),
        "rand": lambda: torch.rand(1, device=name),
        **{name: lambda f=f: f(bad) for name, f in {
            "set_device": flagos.set_device, "synchronize": flagos.synchronize,
            "current_stream": flagos.current_stream, "Stream": flagos.Stream,
            "get_device_name": flagos.get_device_name, "memory_stats": flagos.memory_stats,
            "get_rng_state": flagos.get_rng_state, "mem_get_info": flagos.mem_get_info,
            "utilization": flagos.utilization, "_snapshot": flagos.memory._snapshot,
            "caching_allocator_alloc": lambda d: flagos.caching_allocator_alloc(1, d),
            "get_per_process_memory_fraction": flagos.get_per_process_memory_fraction,
            "_C.synchronize": _C.synchronize, "_C.refuse_device": _C.refuse_device,
        }.items()},
    }

for bad in (COUNT, COUNT + 7, 100):
    for name, use in uses(bad).items():
        try:
            use()
        except RuntimeError as error:
            text = str(error).splitlines()[0]
            assert text == TEXT.format(bad), f"{name}: {text}"
        else:
            raise AssertionError(f"{name} accepted device {bad}")
for bad in (128, 300, 1 << 40):
    for use in (flagos.set_device, flagos.synchronize, flagos.memory_stats, _C.synchronize):
        try:
            use(bad)
        except RuntimeError as error:
            assert str(error).splitlines()[0] == TEXT.format(bad), error
        else:
            raise AssertionError(f"{use} accepted device {bad}")
assert acc.current_device_index() == 0 and (x + 1).sum().item() == 4
"""


@pytest.mark.parametrize(("count", "text"), [(1, WITH_ONE), (2, WITH_TWO)])
def test_a_device_that_does_not_exist_is_refused_in_the_same_words_everywhere(
    count: int, text: str
) -> None:
    code = INVALID.replace("COUNT", str(count)).replace("TEXT", repr(text))
    output_of_child(code, FLAGOS_HOST_DEVICES=str(count))


def test_other_types_are_refused_by_what_needs_the_accelerator() -> None:
    for other in ("cpu", "cuda:0", torch.device("meta")):
        for call in (
            accelerator.synchronize,
            accelerator.set_device_index,
            accelerator.current_stream,
            accelerator.memory_stats,
            accelerator.memory_allocated,
            accelerator.get_memory_info,
            accelerator.reset_peak_memory_stats,
        ):
            with pytest.raises((ValueError, RuntimeError), match="match"):
                call(other)
