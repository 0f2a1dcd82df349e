"""Owns: the words in which a backend describes itself to the core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class HostRuntime:
    """Devices, streams and memory made by the core on CPU memory.

    `devices`: how many, 1 to 64. `memory_limit`: bytes for each device, 0 for all that the machine
    has. `guard`: device memory faults when touched outside kernels and copies, a debugging aid.
    """

    devices: int = 1
    memory_limit: int = 0
    guard: bool = False


@dataclass(frozen=True)
class DelegateRuntime:
    """Devices, streams and memory of a device that this PyTorch already has, such as "cuda"."""

    device_type: str


@dataclass(frozen=True)
class Plugin:
    """A backend: its name, and how its runtime is found when it has been chosen.

    `runtime` may look at the environment and raises ValueError for a setting that it does not
    understand.
    """

    name: str
    runtime: Callable[[], HostRuntime | DelegateRuntime]
