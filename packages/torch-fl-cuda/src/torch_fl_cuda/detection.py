"""Owns: whether NVIDIA GPUs are in a machine and open to this process, by what the kernel shows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from torch_fl.plugins.spec import Detection

if TYPE_CHECKING:
    from torch_fl.plugins.machine import Machine

VENDOR = 0x10DE
GPUS = "/dev/nvidia[0-9]*"
CONTROL = "/dev/nvidiactl"  # every use of the driver opens it
WSL_GPU, WSL_LIBRARY = "/dev/dxg", "/usr/lib/wsl/lib/libcuda.so.1"
BOARD = "/proc/device-tree/compatible"  # of boards whose GPU is on no PCI bus

VISIBLE = "CUDA_VISIBLE_DEVICES"


def detect(machine: Machine) -> Detection:
    """Looks for NVIDIA's PCI functions and its driver's nodes: under 1 ms, without any library."""
    if (why := hidden(machine)) is not None:
        return _none(why)
    if machine.pci(VENDOR):
        return _with_nodes(machine, exact=True)
    if "nvidia,tegra" in (machine.read(BOARD) or ""):
        return Detection(found=True, exact=True, devices=1, reason="The board is an NVIDIA Tegra.")
    if machine.exists(WSL_GPU) and machine.exists(WSL_LIBRARY):
        return Detection(found=True, reason="Windows passes an NVIDIA GPU into this WSL.")
    if not machine.pci_devices and machine.nodes(GPUS):
        # A sandbox that hides the bus. Only a maker's id is exact: others may use the nodes' name.
        return _with_nodes(machine, exact=False)
    return _none(f"No PCI device of vendor {VENDOR:#06x}.")


def hidden(machine: Machine) -> str | None:
    """Why CUDA_VISIBLE_DEVICES leaves no device: CUDA reads it up to the first entry that names
    none, and an empty value or one that begins with -1 names none at all. None where it does not.
    """
    visible = os.environ.get(VISIBLE)
    if visible is None:
        return None
    first = visible.partition(",")[0].strip()
    if not first or first.startswith("-") or first == "NoDevFiles":
        return f"{VISIBLE}={visible!r} hides every GPU."
    opened = [node for node in machine.nodes(GPUS) if machine.accessible(node)]
    if first.isdecimal() and opened and int(first) >= len(opened):
        return f"{VISIBLE}={visible!r} names no GPU: this process may open {len(opened)}."
    return None


def _with_nodes(machine: Machine, *, exact: bool) -> Detection:
    nodes = machine.nodes(GPUS)
    if not nodes:
        return _none(
            "There is no /dev/nvidia0. Is NVIDIA's driver loaded (nvidia-smi)? In a container: was "
            "it started with its GPUs (docker run --gpus all)?"
        )
    opened = [node for node in nodes if machine.accessible(node)]
    if not opened or not machine.accessible(CONTROL):
        closed = CONTROL if opened else nodes[0]
        return _none(f"This user may not open {closed}, or it is not there.")
    return Detection(found=True, exact=exact, devices=len(opened))


def _none(reason: str) -> Detection:
    return Detection(found=False, reason=reason)
