"""Owns: every call that takes a device, given a device that does not exist.

To be run in a process of its own: what goes wrong here may end the process.
"""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

D = "flagos"
SAVED = io.BytesIO()
torch.save(torch.ones(3), SAVED)


def _load(place: Any) -> Any:
    SAVED.seek(0)
    return torch.load(SAVED, map_location=place)


def _enter(context: Any) -> None:
    with context:
        torch.ones(2, device=D)


def _x() -> torch.Tensor:
    return torch.ones(3, device=D)


# Calls that take a torch.device, a string or an index alike.
BY_DEVICE: dict[str, Callable[[Any], Any]] = {
    "empty": lambda d: torch.empty(3, device=d),
    "empty of nothing": lambda d: torch.empty(0, device=d),
    "ones": lambda d: torch.ones(3, device=d),
    "tensor": lambda d: torch.tensor([1, 2], device=d),
    "as_tensor": lambda d: torch.as_tensor([1.0], device=d),
    "arange": lambda d: torch.arange(3, device=d),
    "rand": lambda d: torch.rand(3, device=d),
    "randperm": lambda d: torch.randperm(3, device=d),
    "full": lambda d: torch.full((2,), 1, device=d),
    "eye": lambda d: torch.eye(2, device=d),
    "linspace": lambda d: torch.linspace(0, 1, 3, device=d),
    "empty_strided": lambda d: torch.empty_strided((2, 2), (1, 2), device=d),
    "empty_permuted": lambda d: torch.empty_permuted((2, 2), (1, 0), device=d),
    "empty_like": lambda d: torch.empty_like(torch.ones(2), device=d),
    "zeros_like": lambda d: torch.zeros_like(_x(), device=d),
    "new_ones": lambda d: _x().new_ones(2, device=d),
    "new_tensor": lambda d: _x().new_tensor([1.0], device=d),
    "sparse": lambda d: torch.sparse_coo_tensor([[0]], [1.0], (2,), device=d),
    "sparse csr": lambda d: torch.sparse_csr_tensor([0, 1], [0], [1.0], (1, 1), device=d),
    "tril_indices": lambda d: torch.tril_indices(2, 2, device=d),
    "hann_window": lambda d: torch.hann_window(4, device=d),
    "fftfreq": lambda d: torch.fft.fftfreq(4, device=d),
    "UntypedStorage": lambda d: torch.UntypedStorage(3, device=d),
    "to": lambda d: torch.ones(2).to(d),
    "to from the device": lambda d: _x().to(d),
    "to of nothing": lambda d: torch.empty(0).to(d),
    "storage.to": lambda d: torch.ones(2).untyped_storage().to(device=torch.device(d)),
    "Module.to": lambda d: nn.Linear(2, 2).to(d),
    "Module in a factory": lambda d: nn.Linear(2, 2, device=d),
    "device as a context": lambda d: _make_in(torch.device(d)),
    "set_default_device": lambda d: _default(d),
    "Generator": lambda d: torch.Generator(d),
    "Stream": lambda d: torch.Stream(d),
    "flagos.Stream": lambda d: torch.flagos.Stream(d),
    "Stream by ids": lambda d: _stream(d).synchronize(),
    "query of a stream": lambda d: _stream(d).query(),
    "handle of a stream": lambda d: _stream(d).native_handle,
    "a stream as a context": lambda d: _enter(_stream(d)),
    "set_stream": lambda d: torch.accelerator.set_stream(_stream(d)),
    "record on a stream": lambda d: torch.Event(D).record(_stream(d)),
    "record_event": lambda d: _stream(d).record_event(),
    "wait for an event": lambda d: _recorded().wait(_stream(d)),
    "wait_stream": lambda d: torch.flagos.current_stream().wait_stream(_stream(d)),
    "record_stream": lambda d: _x().record_stream(_stream(d)),
    "set_device": lambda d: torch.flagos.set_device(d),
    "device": lambda d: _enter(torch.flagos.device(d)),
    "synchronize": lambda d: torch.flagos.synchronize(d),
    "current_stream": lambda d: torch.flagos.current_stream(d),
    "default_stream": lambda d: torch.flagos.default_stream(d),
    "properties": lambda d: torch.flagos.get_device_properties(d),
    "name": lambda d: torch.flagos.get_device_name(d),
    "capability": lambda d: torch.flagos.get_device_capability(d),
    "memory_allocated": lambda d: torch.flagos.memory_allocated(d),
    "memory_stats": lambda d: torch.flagos.memory_stats(d),
    "memory_summary": lambda d: torch.flagos.memory_summary(d),
    "mem_get_info": lambda d: torch.flagos.mem_get_info(d),
    "reset_peak_memory_stats": lambda d: torch.flagos.reset_peak_memory_stats(d),
    "set_per_process_memory_fraction": lambda d: torch.flagos.set_per_process_memory_fraction(
        0.5, d
    ),
    "get_rng_state": lambda d: torch.flagos.get_rng_state(d),
    "set_rng_state": lambda d: torch.flagos.set_rng_state(torch.flagos.get_rng_state(0), d),
    "accelerator.set_device_index": lambda d: torch.accelerator.set_device_index(d),
    "accelerator.current_stream": lambda d: torch.accelerator.current_stream(d),
    "accelerator.synchronize": lambda d: torch.accelerator.synchronize(d),
    "accelerator.memory_allocated": lambda d: torch.accelerator.memory_allocated(d),
    "accelerator.memory_stats": lambda d: torch.accelerator.memory_stats(d),
    "accelerator.get_memory_info": lambda d: torch.accelerator.get_memory_info(d),
    "accelerator.device_index": lambda d: _enter(
        torch.accelerator.device_index(torch.device(d).index)
    ),
    "map_location": lambda d: _load(torch.device(d)),
    "map_location by name": lambda d: _load({"cpu": str(torch.device(d))}),
    "fork_rng": lambda d: _enter(torch.random.fork_rng([torch.device(d).index], device_type=D)),
    "Tensor.flagos": lambda d: torch.ones(2).flagos(d),  # type: ignore[attr-defined]
    "Module.flagos": lambda d: nn.Linear(2, 2).flagos(d),
    "device_of": lambda d: _enter(torch.flagos.device_of(torch.ones(2).to(d))),
    "can_device_access_peer": lambda d: torch.flagos.can_device_access_peer(
        torch.device(d).index, 0
    ),
    "from_numpy and to": lambda d: torch.from_numpy(torch.ones(2).numpy()).to(d),
    "nested jagged": lambda d: torch.nested.nested_tensor(
        [torch.ones(2), torch.ones(3)], layout=torch.jagged, device=d
    ),
    "deepcopy": lambda d: copy.deepcopy(torch.ones(2)).to(d),
    "share between devices": lambda d: torch.ones(2).to(d, non_blocking=True),
    "foreach_copy": lambda d: torch._foreach_copy_([torch.ones(2).to(d)], [torch.ones(2)]),
}


def _make_in(device: torch.device) -> None:
    with device:
        torch.ones(2)


def _default(device: Any) -> None:
    try:
        torch.set_default_device(device)
        torch.ones(2)
    finally:
        torch.set_default_device(None)


def _stream(device: Any) -> torch.Stream:
    kind = torch.ones(0, device=D).device
    return torch.Stream(
        stream_id=5,
        device_index=torch.device(device).index,
        device_type=torch.Stream(kind).device_type,
    )


def _recorded() -> torch.Event:
    event = torch.Event(D)
    event.record()
    return event


def missing(count: int) -> list[Any]:
    """Devices that a process with `count` devices does not have; PyTorch lets all of them pass."""
    numbers = [count, 99, 127]
    return [
        *(f"{D}:{number}" for number in numbers),
        *(torch.device(D, number) for number in numbers),
        *numbers,
    ]


# A number past 127 gets a wrong sign in PyTorch's own parser: no device, and not the current one.
WRAPPED: list[Any] = [f"{D}:128", torch.device(D, 200), 130]

# What is no device at all.
NONSENSE: list[Any] = [
    f"{D}:-1", f"{D}:99999999999999999999", f"{D}:a", f"{D}:", f"{D}:0:0", f"{D}:00", f"{D}0",
    "flag", "", 10**30, [], {}, object(), math.nan,
]  # fmt: skip


def outcome(call: Callable[[Any], Any], device: Any) -> tuple[str, str]:
    """Type and text of the error; ("", "") when there was none."""
    try:
        call(device)
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


def faults_of_missing_devices() -> list[str]:
    """Calls that do not refuse a missing device with its number and how many there are."""
    count = torch.flagos.device_count()
    faults = []
    for name, call in BY_DEVICE.items():
        for device in missing(count):
            index = torch.device(device).index
            print(name, device, flush=True)  # the last line names what ended the process
            kind, text = outcome(call, device)
            named = f"Invalid flagos device index {index}: {count} device" in text
            loading = f"on FLAGOS device {index} but torch.flagos.device_count() is {count}" in text
            if kind != "RuntimeError" or not (named or loading):
                faults.append(f"{name} on {device!r}: {kind} {text[:200]}")
            if torch.flagos.current_device() != 0 or torch.ones(2, device=D).sum().item() != 2:
                faults.append(f"after {name} on {device!r} the device is another one")
    return faults


# As PyTorch's own: a device type, or "no device", is what these take other things for; of CUDA's
# functions a negative number is documented to change nothing.
TAKES_ANYTHING = {
    "accelerator.current_stream", "accelerator.synchronize", "accelerator.memory_allocated",
    "accelerator.memory_stats", "accelerator.get_memory_info", "to", "to from the device",
    "to of nothing", "Module.to", "from_numpy and to", "deepcopy", "share between devices",
    "foreach_copy", "device_of",
}  # fmt: skip
NEGATIVE_CHANGES_NOTHING = {"set_device", "device", "accelerator.set_device_index",
                            "accelerator.device_index", "flagos.Stream"}  # fmt: skip
ALLOWED = {"RuntimeError", "ValueError", "TypeError", "OverflowError", "AssertionError",
           "AttributeError"}  # fmt: skip


def faults_of_nonsense() -> list[str]:
    """Calls that take what is no device for one, or refuse it without a word."""
    faults = []
    for name, call in BY_DEVICE.items():
        for device in [*WRAPPED, *NONSENSE]:
            print(name, repr(device), flush=True)
            kind, text = outcome(call, device)
            if kind == "":
                wrapped = any(device is one for one in WRAPPED)
                if wrapped and name in NEGATIVE_CHANGES_NOTHING:
                    continue
                if name in TAKES_ANYTHING and not isinstance(device, (str, int, torch.device)):
                    continue
                faults.append(f"{name} takes {device!r}")
            elif kind not in ALLOWED or not text:
                faults.append(f"{name} of {device!r}: {kind} {text[:200]}")
        if torch.flagos.current_device() != 0 or torch.ones(2, device=D).sum().item() != 2:
            faults.append(f"after {name} the device is another one")
    return faults
