"""Owns: the embedded plugin: a backend on the CPU memory of any machine, and its settings."""

from __future__ import annotations

from torch_fl import settings
from torch_fl.plugins.declarations import HOST, LARGEST_PRIORITY
from torch_fl.plugins.machine import Machine
from torch_fl.plugins.spec import API_VERSION, Detection, HostRuntime, Identity, hookimpl


@hookimpl
def torch_fl_identity() -> Identity:
    return Identity(HOST, API_VERSION, title="CPU memory", priority=-LARGEST_PRIORITY)


@hookimpl
def torch_fl_detect(machine: Machine) -> Detection:
    return Detection(found=True, reason="It works on every machine.")


@hookimpl
def torch_fl_runtime() -> HostRuntime:
    """As FLAGOS_HOST_DEVICES, FLAGOS_HOST_MEMORY and FLAGOS_HOST_GUARD want it."""
    return HostRuntime(
        devices=settings.FLAGOS_HOST_DEVICES.read(),
        memory_limit=settings.FLAGOS_HOST_MEMORY.read(),
        guard=settings.FLAGOS_HOST_GUARD.read(),
    )
