"""Owns: a program run twice at a time, on CUDA used natively and on flagos; and the program that
sends tensors to another process. Functions are sent by name, so this file is imported there too.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing.reduction as pickling
import os
import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp
from gpu_busy import CYCLES

Tensor = torch.Tensor

DEVICE = "DEVICE"  # the variable that tells a child, and its children, where to work
TIMEOUT_S = 60.0

if os.environ.get(DEVICE) == "flagos":
    importlib.import_module("torch_fl")


def on_both(said: Callable[..., Any], module: str, call: str) -> tuple[Any, Any]:
    """What `module.call` gives as JSON in two children: natively, and on flagos."""
    code = f"""
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import gpu_child, {module}
        device = os.environ[gpu_child.DEVICE]
        assert ("torch_fl" in sys.modules) == (device == "flagos")
        print(json.dumps({module}.{call}))
    """
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(said, code, DEVICE=device) for device in ("cuda", "flagos")]
        native, flagos = (run.result() for run in runs)
    return native, flagos


# -- what the other process does


class OnDevice(torch.utils.data.Dataset[Tensor]):
    """Makes its items on the device, in whatever process it is asked."""

    def __init__(self, device: str) -> None:
        self.device = device

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Tensor:
        return torch.full((2,), float(index), device=self.device)


kept: list[Tensor] = []


def serve(inbox: Any, outbox: Any) -> None:
    """Answers each (function, argument) until None comes; an error is answered as its text, one of
    receiving too."""
    while True:
        try:
            if (request := inbox.get()) is None:
                return
            function, argument = request
            outbox.put(function(argument))
        except EOFError:
            raise
        except Exception as error:
            outbox.put(_text(error))


def describe(tensors: list[Tensor]) -> list[list[Any]]:
    def facts(x: Tensor) -> list[Any]:
        here = x.device.type == os.environ[DEVICE]
        layout = [str(x.dtype), list(x.shape), list(x.stride())]
        return [type(x).__name__, here, x.requires_grad, *layout, x.tolist()]

    return [facts(x) for x in tensors]


def add_one(tensors: list[Tensor]) -> None:
    with torch.no_grad():
        for tensor in tensors:
            tensor.add_(1)
    torch.accelerator.synchronize()


def share_storages(tensors: list[Tensor]) -> list[bool]:
    first = tensors[0].untyped_storage()._cdata
    return [x.untyped_storage()._cdata == first for x in tensors]


def keep(tensor: Tensor) -> None:
    kept.append(tensor)


def values(_: None) -> list[float]:
    return [float(x) for x in kept[-1].tolist()]


def drop(_: None) -> None:
    kept.clear()
    gc.collect()


def make(value: float) -> Tensor:
    kept.append(torch.full((3,), value, device=os.environ[DEVICE]))
    return kept[-1]


def send_on(tensor: Tensor) -> str:
    return refusal(tensor)


def step(model: torch.nn.Module) -> None:
    """One step of training; the parameters are shared with the caller."""
    model(torch.ones(1, 2, device=os.environ[DEVICE])).sum().backward()
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    torch.accelerator.synchronize()


def wait_for(event_and_tensor: tuple[bytes, Tensor]) -> list[float]:
    """Reads the tensor behind an event of the sender, which is one of CUDA's on both sides."""
    handle, tensor = event_and_tensor
    event = torch.cuda.Event.from_ipc_handle(torch.device("cuda", 0), handle)
    torch.cuda.current_stream().wait_event(event)
    return [float(x) for x in tensor.tolist()]


# -- what is tried with it


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def refusal(thing: Any) -> str:
    """The error of sending `thing`."""
    try:
        pickling.ForkingPickler.dumps(thing)
    except Exception as error:
        return _text(error)
    return "was sent"


def exchange(device: str) -> dict[str, Any]:
    """What comes of sending tensors of `device` to another process and back."""
    gpu = torch.get_device_module(device)
    here = mp.get_context("spawn")
    inbox, outbox = here.Queue(), here.Queue()
    process = here.Process(target=serve, args=(inbox, outbox))
    process.start()
    unsent: list[str] = []  # why, of what a queue's background thread could not send
    inbox._on_queue_feeder_error = lambda error, _: unsent.append(_text(error))

    def ask(function: Callable[[Any], Any], argument: Any) -> Any:
        inbox.put((function, argument))
        return outbox.get(timeout=TIMEOUT_S)

    def numbers(count: int = 6) -> Tensor:
        return torch.arange(float(count), device=device)

    facts: dict[str, Any] = {}
    kinds = [
        numbers(),
        numbers().view(2, 3).t(),
        torch.tensor(3, device=device),
        torch.ones(2, dtype=torch.bfloat16, device=device),
        torch.ones(2, dtype=torch.bool, device=device),
        torch.empty(0, 3, device=device),
        torch.ones(2, device=device, requires_grad=True),
        torch.nn.Parameter(numbers(2)),
        torch.nn.Parameter(numbers(2), requires_grad=False),
    ]
    try:
        facts["kinds"] = [ask(describe, kinds), describe(kinds)]
    except queue.Empty:
        alive = process.is_alive()
        process.terminate()
        return {"unanswered": {"alive": alive, "exit code": process.exitcode, "unsent": unsent}}

    shared = numbers()
    views = [shared, shared[2:4], shared.view(2, 3)]
    facts["views share a storage there"] = ask(share_storages, views)
    facts["adding there"] = ask(add_one, views[:2])
    facts["after adding there"] = [shared.tolist(), views[1].tolist()]

    ask(keep, shared)
    shared.fill_(7)
    gpu.synchronize()
    facts["after filling here"] = ask(values, None)
    facts["sending it on"] = ask(send_on, shared)
    facts["a result of operators"] = refusal(torch.ones(2, device=device, requires_grad=True) * 2)

    address = shared.data_ptr()
    facts["is shared"] = [shared.is_shared(), shared.untyped_storage().is_shared()]
    facts["share_memory_"] = [shared.share_memory_() is shared, shared.data_ptr() == address]

    made = ask(make, 3.0)
    ask(drop, None)
    facts["made there"] = [made.device.type == device, ask(make, 4.0).tolist(), made.tolist()]
    del made

    model = torch.nn.Linear(2, 2).to(device)
    model.share_memory()
    before = model.weight.detach().clone()
    ask(step, model)
    facts["trained there"] = (before - model.weight.detach()).round().tolist()

    level = gpu.memory_allocated()
    large = torch.zeros(16 << 20, device=device)
    ask(keep, large)
    del large
    levels = [gpu.memory_allocated() - level]
    ask(drop, None)
    gpu.ipc_collect()
    facts["memory until the receiver lets go"] = [*levels, gpu.memory_allocated() - level]

    facts["an event of CUDA's"] = _behind_an_event(gpu, ask, torch.zeros(3, device=device))
    inbox.put(None)
    process.join(TIMEOUT_S)
    return {**facts, "exit code": process.exitcode}


def _behind_an_event(gpu: Any, ask: Callable[..., Any], tensor: Tensor) -> Any:
    try:
        event = torch.cuda.Event(interprocess=True)
        gpu.synchronize()
        gpu._sleep(CYCLES)
        tensor.fill_(9)
        event.record(torch.cuda.current_stream())
        return ask(wait_for, (event.ipc_handle(), tensor))
    except RuntimeError as error:
        return _text(error)


def loader(device: str) -> list[Any]:
    """What arrives of batches that a worker makes on `device`."""
    batches = torch.utils.data.DataLoader(
        OnDevice(device),
        batch_size=2,
        num_workers=1,
        multiprocessing_context="spawn",
        timeout=TIMEOUT_S,
    )
    return [[batch.device.type == device, batch.tolist()] for batch in batches]
