"""safetensors: files to flagos and from it."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
import torch

from torch_fl._compat import safetensors as compat

if TYPE_CHECKING:
    from pathlib import Path


def as_safetensors_does(filename: str, framework: str, device: Any = "cpu", **_: Any) -> Any:
    """Knows some names of devices, and numbers, which it does not look at."""
    if isinstance(device, int) or str(device) == "cpu":
        return filename, framework, torch.device(device)
    raise ValueError(f"device {device} is invalid")


@pytest.mark.parametrize("device", ["flagos", "flagos:0", torch.device("flagos", 0), 0])
def test_a_flagos_device_becomes_its_number(device: Any) -> None:
    opener = compat.opening(as_safetensors_does)
    assert opener("file", "pt", device=device)[2] == torch.device("flagos", 0)
    assert opener("file", framework="pt")[2] == torch.device("cpu")
    with pytest.raises(ValueError, match="other:0 is invalid"):
        opener("file", "pt", "other:0")


def test_both_modules_that_have_the_name_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    package: Any = ModuleType("safetensors")
    package.safe_open = as_safetensors_does
    module: Any = ModuleType("safetensors.torch")
    module.safe_open = as_safetensors_does
    monkeypatch.setitem(sys.modules, "safetensors", package)
    monkeypatch.setitem(sys.modules, "safetensors.torch", module)
    compat.install()
    for changed in (package, module):
        assert changed.safe_open("file", "pt", "flagos")[2] == torch.device("flagos", 0)


def test_files(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    file = tmp_path / "file.safetensors"
    state = {"a": torch.arange(3.0, device="flagos"), "b": torch.ones(2, 2).bfloat16()}
    safetensors.save_file(state, file)
    for device in ("cpu", "flagos", "flagos:0"):
        loaded = safetensors.load_file(file, device=device)
        assert loaded["a"].device.type == torch.device(device).type
        assert loaded["a"].tolist() == [0, 1, 2]
    with safetensors.safe_open(file, "pt", device="flagos") as opened:
        assert opened.get_slice("a")[:2].device.type == "flagos"
    model = torch.nn.Linear(2, 2).to("flagos")
    safetensors.save_model(model, file)
    again = torch.nn.Linear(2, 2).to("flagos")
    safetensors.load_model(again, file, device="flagos")
    assert torch.equal(again.weight, model.weight)
