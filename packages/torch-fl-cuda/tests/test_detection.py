"""Owns: tests of detection, on folders that look like machines."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pretend_machine import PretendMachine

from torch_fl.plugins.machine import Machine
from torch_fl_cuda import detection, plugin

NVIDIA, AMD = 0x10DE, 0x1002


@pytest.fixture(autouse=True)
def _nothing_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def machine(tmp_path: Path) -> PretendMachine:
    """With what servers have beside GPUs, some of it NVIDIA's."""
    pretend = PretendMachine(tmp_path)
    pretend.pci(0x8086, 0x0D57, 0x060000)
    pretend.pci(NVIDIA, 0x22A3, 0x068000)  # an NVSwitch
    pretend.pci(NVIDIA, 0x10F8, 0x040300)  # the sound of a display port
    return pretend


def _detect(machine: PretendMachine) -> detection.Detection:
    return plugin.torch_fl_detect(Machine(machine.root))


@pytest.mark.parametrize("class_code", [0x030200, 0x030000], ids=["3D", "VGA"])
def test_gpus_of_a_server(machine: PretendMachine, class_code: int) -> None:
    for device in range(3):
        machine.pci(NVIDIA, 0x2330, class_code)
        machine.nodes(f"nvidia{device}")
    machine.nodes("nvidiactl", "nvidia-uvm", "nvidia-modeset")
    found = _detect(machine)
    assert (found.found, found.exact, found.devices) == (True, True, 3)


def test_a_container_with_one_of_the_hosts_gpus(machine: PretendMachine) -> None:
    for _ in range(8):
        machine.pci(NVIDIA, 0x2330, 0x030200)
    machine.nodes("nvidia5", "nvidiactl")
    assert _detect(machine).devices == 1


def test_no_gpu(machine: PretendMachine) -> None:
    machine.pci(AMD, 0x74A1, 0x120000)
    machine.nodes("nvidia0", "nvidiactl")  # somebody else's
    found = _detect(machine)
    assert (found.found, found.reason) == (False, "No PCI device of vendor 0x10de.")


def test_a_gpu_without_its_nodes(machine: PretendMachine) -> None:
    machine.pci(NVIDIA, 0x2330, 0x030200)
    machine.nodes("nvidia-caps/nvidia-cap1")
    found = _detect(machine)
    assert not found.found
    assert "nvidia-smi" in found.reason
    assert "--gpus all" in found.reason
    machine.nodes("nvidia0")
    assert "/dev/nvidiactl" in _detect(machine).reason


def test_a_gpu_that_may_not_be_opened(
    machine: PretendMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.pci(NVIDIA, 0x2330, 0x030200)
    machine.nodes("nvidia0", "nvidiactl")
    monkeypatch.setattr(Machine, "accessible", lambda _, path: path == "/dev/nvidiactl")
    found = _detect(machine)
    assert not found.found
    assert "may not open /dev/nvidia0" in found.reason


def test_a_sandbox_that_hides_the_bus(tmp_path: Path) -> None:
    machine = PretendMachine(tmp_path)
    machine.nodes("nvidia0", "nvidiactl")
    found = _detect(machine)
    assert (found.found, found.exact, found.devices) == (True, False, 1)


def test_windows_and_boards(tmp_path: Path) -> None:
    windows = PretendMachine(tmp_path / "windows")
    windows.nodes("dxg")
    assert not _detect(windows).found  # another maker's GPU
    library = windows.root / "usr/lib/wsl/lib/libcuda.so.1"
    library.parent.mkdir(parents=True)
    library.touch()
    assert (_detect(windows).found, _detect(windows).exact) == (True, False)
    board = PretendMachine(tmp_path / "board")
    compatible = board.root / "proc/device-tree/compatible"
    compatible.parent.mkdir(parents=True)
    compatible.write_bytes(b"nvidia,p3737-0000\0nvidia,tegra234\0")
    assert (_detect(board).found, _detect(board).exact) == (True, True)


@pytest.mark.parametrize(
    ("visible", "hidden"),
    [
        *(("", True), ("-1", True), (" ,0", True), ("NoDevFiles", True)),
        *(("0", False), ("0,-1", False), ("GPU-8932f937", False), ("MIG-1", False)),
    ],
)
def test_hidden_by_the_user(
    machine: PretendMachine, monkeypatch: pytest.MonkeyPatch, visible: str, hidden: bool
) -> None:
    machine.pci(NVIDIA, 0x2330, 0x030200)
    machine.nodes("nvidia0", "nvidiactl")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = _detect(machine)
    assert found.found is not hidden
    assert ("CUDA_VISIBLE_DEVICES" in found.reason) is hidden


def test_it_takes_no_time(machine: PretendMachine) -> None:
    for _ in range(80):  # as a server has
        machine.pci(0x8086, 0x0DB0, 0x060400)
    for device in range(8):
        machine.pci(NVIDIA, 0x2330, 0x030200)
        machine.nodes(f"nvidia{device}")
    machine.nodes("nvidiactl")
    times = []
    for _ in range(50):
        start = time.process_time()
        assert _detect(machine).found
        times.append(time.process_time() - start)
    assert min(times) < 1e-3


@pytest.mark.parametrize(
    ("visible", "found"),
    [("0", True), ("1,0", True), ("2", False), ("7,0", False), ("GPU-3", True)],
)
def test_a_number_that_no_gpu_has(
    machine: PretendMachine, monkeypatch: pytest.MonkeyPatch, visible: str, found: bool
) -> None:
    for device in range(2):
        machine.pci(NVIDIA, 0x2330, 0x030200)
        machine.nodes(f"nvidia{device}")
    machine.nodes("nvidiactl")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    detection = _detect(machine)
    assert detection.found is found
    assert found or "names no GPU: this process may open 2" in detection.reason
