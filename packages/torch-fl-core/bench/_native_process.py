"""Owns: the native side of a measurement in a process of its own.

Once ``flagos`` is the process's accelerator, a backward pass on
another accelerator's tensors fails in PyTorch's autograd engine. Such native slices run in a
process where the plugin is not loaded, still alternating with the slices here.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from multiprocessing.connection import Connection

import torch
from _dispatch_cases import CASES
from _slices import LocalSide


def synchronize(device: torch.device) -> None:
    """Wait for a device; the CPU has nothing to wait for."""
    if device.type != "cpu":
        torch.get_device_module(device).synchronize(device)


def local_side(name: str, device: torch.device) -> LocalSide:
    """The named case on a device of this process."""
    return LocalSide(CASES[name].build(device), lambda: synchronize(device))


def _serve(connection: Connection, device_name: str) -> None:
    torch.set_num_threads(1)
    gc.disable()
    device = torch.device(device_name)
    sides: dict[str, LocalSide] = {}
    while True:
        try:
            name, calls = connection.recv()
        except EOFError:
            return
        if name not in sides:
            sides[name] = local_side(name, device)
        with torch.set_grad_enabled(CASES[name].grad):
            connection.send(sides[name].seconds_per_call(calls))


class NativeProcess:
    """A process that runs slices of cases on a native device."""

    def __init__(self, device: torch.device) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, str(device)), daemon=True)
        # The child must not find the plugin by itself.
        old = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD")
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        try:
            self._process.start()
        finally:
            if old is None:
                del os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"]
            else:
                os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = old
        theirs.close()

    def seconds_per_call(self, name: str, calls: int) -> float:
        """Run a slice over there. Raises EOFError if the process died."""
        self._connection.send((name, calls))
        return float(self._connection.recv())

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.join()


class RemoteSide:
    """One case of a `NativeProcess`."""

    def __init__(self, process: NativeProcess, name: str) -> None:
        self._process = process
        self._name = name

    def seconds_per_call(self, calls: int) -> float:
        """See `_slices.Side`."""
        return self._process.seconds_per_call(self._name, calls)
