"""Owns: tests that a device that does not exist is refused by every call that takes one."""

from __future__ import annotations

from pathlib import Path

import pytest
from children import output_of_child

HERE = Path(__file__).parent


@pytest.mark.parametrize("count", ["1", "2"])
def test_what_is_no_device_is_refused(count: str) -> None:
    """In a child: an index that nobody checks may end the process. Its last lines tell."""
    output = output_of_child(
        f"""
        import sys, warnings
        sys.path[:0] = {[str(HERE), str(HERE.parent)]!r}
        warnings.simplefilter("ignore")
        import torch, torch_fl
        import wrong_devices
        faults = wrong_devices.faults_of_missing_devices() + wrong_devices.faults_of_nonsense()
        print("FAULTS", *faults, sep="\\n")
        assert torch.flagos.memory_allocated() < 1 << 20
        """,
        FLAGOS_HOST_DEVICES=count,
    )
    tried, _, faults = output.partition("FAULTS\n")
    assert len(tried.splitlines()) > 800
    assert faults.strip() == ""
