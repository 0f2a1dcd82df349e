"""Owns: tests of what a plugin sees of the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pretend_machine import PretendMachine

from torch_fl.plugins.machine import Machine, PciDevice


@pytest.fixture
def pretend(tmp_path: Path) -> PretendMachine:
    return PretendMachine(tmp_path)


@pytest.mark.parametrize("modalias", [True, False])
def test_pci_devices_have_their_ids(pretend: PretendMachine, modalias: bool) -> None:
    pretend.pci(0x10DE, 0x2330, 0x030200, subsystem=0x10DE, modalias=modalias)
    pretend.pci(0x19E5, 0xD802, 0x120001, modalias=modalias)
    assert Machine(pretend.root).pci_devices == (
        PciDevice("0000:00:00.0", 0x10DE, 0x2330, 0x030200, 0x10DE),
        PciDevice("0000:00:01.0", 0x19E5, 0xD802, 0x120001, 0),
    )


@pytest.mark.parametrize(
    ("class_code", "computes"),
    [
        (0x030000, True),  # VGA
        (0x030200, True),  # 3D controller
        (0x038000, True),  # other display
        (0x120000, True),  # processing accelerator
        (0x0B4000, True),  # co-processor
        (0x0B2000, False),  # another processor
        (0x040300, False),  # audio
        (0x060400, False),  # bridge
        (0x068000, False),  # other bridge
        (0x020000, False),  # network
    ],
)
def test_what_computes_is_told_by_its_class(
    pretend: PretendMachine, class_code: int, computes: bool
) -> None:
    pretend.pci(0x10DE, 1, class_code)
    assert len(Machine(pretend.root).pci(0x10DE)) == computes
    assert Machine(pretend.root).pci(0x10DF) == ()


def test_what_cannot_be_read_is_skipped(pretend: PretendMachine) -> None:
    pretend.pci(1, 1, 0x030000)
    (pretend.pci(2, 2, 0x030000) / "modalias").write_text("pci:nonsense\n")
    (pretend.pci(3, 3, 0x030000, modalias=False) / "class").write_bytes(b"\xff\n")
    (pretend.pci(4, 4, 0x030000, modalias=False) / "vendor").unlink()
    folder = pretend.pci(5, 5, 0x030000) / "modalias"
    folder.unlink()
    folder.mkdir()
    pretend.pci(6, 6, 0x030000)
    assert [device.vendor for device in Machine(pretend.root).pci_devices] == [1, 6]


def test_an_empty_machine_has_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "not there")
    assert machine.pci_devices == ()
    assert machine.nodes("/dev/*") == ()
    assert machine.read("/proc/version") is None
    assert not machine.exists("/dev")
    assert len(machine.notes()) == 1
    assert Machine(tmp_path).notes() == ()


def test_pci_devices_are_read_once(pretend: PretendMachine) -> None:
    pretend.pci(1, 1, 0x030000)
    machine = Machine(pretend.root)
    first = machine.pci_devices
    pretend.pci(2, 2, 0x030000)
    assert machine.pci_devices is first


def test_nodes_are_named_as_on_the_machine(tmp_path: Path) -> None:
    pretend = PretendMachine(tmp_path / "a [strange] root*")
    pretend.nodes("accel/accel0", "accel/accel1", "accel/control", "other0")
    machine = Machine(pretend.root)
    assert machine.nodes("/dev/accel/accel[0-9]*") == ("/dev/accel/accel0", "/dev/accel/accel1")
    assert machine.nodes("/dev/nothing*") == ()
    assert machine.exists("/dev/other0")


def test_only_regular_files_are_read(pretend: PretendMachine) -> None:
    pretend.nodes("node")
    os.mkfifo(pretend.root / "dev/pipe")
    (pretend.root / "version").write_text(" driver 5.1\n")
    machine = Machine(pretend.root)
    assert machine.read("/version") == "driver 5.1"
    assert machine.read("/dev/pipe") is None
    assert machine.read("/dev") is None
    assert machine.read("/dev/\0") is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open everything")
def test_a_closed_node_exists_and_is_not_accessible(pretend: PretendMachine) -> None:
    pretend.nodes("closed")
    (pretend.root / "dev/closed").chmod(0)
    machine = Machine(pretend.root)
    assert machine.exists("/dev/closed")
    assert not machine.accessible("/dev/closed")


def test_an_open_node_is_accessible(pretend: PretendMachine) -> None:
    pretend.nodes("open")
    assert Machine(pretend.root).accessible("/dev/open")
    assert not Machine(pretend.root).accessible("/dev/none")


def test_the_root_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLAGOS_DEVICE_ROOT", str(tmp_path))
    assert Machine.here().root == tmp_path
    monkeypatch.delenv("FLAGOS_DEVICE_ROOT")
    assert Machine.here().root == Path("/")


def test_this_machine_can_be_read() -> None:
    for device in Machine().pci_devices:
        assert 0 <= device.vendor <= 0xFFFF
        assert 0 <= device.class_code <= 0xFFFFFF
