"""Owns: tests that a maker's plugin is chosen on that maker's hardware alone.

Some stacks report CUDA on hardware that is not NVIDIA's. What a library says is therefore no proof;
the PCI vendor id is.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from catalogue import HYGON, NVIDIA
from choices import choose
from pretend_machine import PretendMachine
from throwaway import Shelf

BOTH = ("nvidialike", "hygonlike")


@pytest.fixture
def machine(tmp_path: Path) -> PretendMachine:
    """Network and bridges, as any machine has; some of them NVIDIA's."""
    pretend = PretendMachine(tmp_path)
    pretend.pci(0x8086, 0x0D57, 0x060000)
    pretend.pci(NVIDIA, 0x22A3, 0x068000)  # a switch: NVIDIA's, but no accelerator
    return pretend


def test_nvidia_hardware_is_nvidias(shelf: Shelf, machine: PretendMachine) -> None:
    machine.pci(NVIDIA, 0x2330, 0x030200)
    machine.nodes("nvidia0", "nvidiactl")
    chosen = choose(shelf, *BOTH, root=machine.root)
    assert chosen.plugin == "nvidialike"
    assert chosen.record("nvidialike")["detection"]["devices"] == 1
    assert chosen.record("hygonlike")["why"].endswith("No PCI device of vendor 0x1d94.")


def test_a_stack_that_reports_cuda_is_not_taken_for_nvidia(
    shelf: Shelf, machine: PretendMachine
) -> None:
    machine.pci(HYGON, 0x54B7, 0x038000)
    machine.nodes("kfd", "nvidia0")  # even the node's name
    (machine.root / "usr/local/cuda").mkdir(parents=True)
    chosen = choose(shelf, *BOTH, root=machine.root)
    assert chosen.plugin == "hygonlike"
    assert chosen.record("nvidialike")["stage"] == "detect"
    alone = choose(shelf, "nvidialike", root=machine.root)
    assert alone.plugin == "host"


def test_an_exact_match_beats_a_plugin_that_trusts_a_library(
    shelf: Shelf, machine: PretendMachine
) -> None:
    machine.pci(HYGON, 0x54B7, 0x038000)
    machine.nodes("kfd")
    chosen = choose(shelf, "weak", "hygonlike", root=machine.root)
    assert chosen.plugin == "hygonlike"


def test_both_in_one_machine_are_a_tie(shelf: Shelf, machine: PretendMachine) -> None:
    machine.pci(NVIDIA, 0x2330, 0x030200)
    machine.pci(HYGON, 0x54B7, 0x038000)
    machine.nodes("nvidia0", "kfd")
    chosen = choose(shelf, *BOTH, root=machine.root)
    assert chosen.plugin is None
    assert "FLAGOS_PLUGIN=hygonlike or FLAGOS_PLUGIN=nvidialike" in str(chosen.error)


def test_a_container_without_the_nodes_is_told_apart(shelf: Shelf, machine: PretendMachine) -> None:
    machine.pci(NVIDIA, 0x2330, 0x030200)
    chosen = choose(shelf, "nvidialike", root=machine.root)
    assert chosen.plugin == "host"
    assert chosen.record("nvidialike")["why"].endswith("is not: is it passed in?")
