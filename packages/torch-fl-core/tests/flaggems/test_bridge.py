"""Owns: tests of the way from FlagGems' list to kernels, with a stand-in for FlagGems.

The stand-in registers as FlagGems does; FlagGems itself needs an accelerator (ci/hardware).
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from torch_fl import routing
from torch_fl.flaggems import bridge
from torch_fl.plugins.loaded import LoadedPlugin
from torch_fl.plugins.spec import TritonTarget
from torch_fl.routing import kernels


def stand_in(key: str) -> SimpleNamespace:
    def mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        assert a.device.type == "cpu"
        return torch.full((a.shape[0], b.shape[1]), 7.0, device=a.device)

    def add_(a: torch.Tensor, b: torch.Tensor, *, alpha: float = 1) -> torch.Tensor:
        return a.fill_(8)

    def enable(lib: Any) -> None:
        lib.impl("mm", mm, key)
        lib.impl("add_.Tensor", add_, key)
        lib.impl("an_operator_of_another_torch", mm, key, allow_override=True)

    return SimpleNamespace(enable=enable)


@pytest.fixture(autouse=True)
def _as_new(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The route as before its first use, on a backend that runs Triton kernels."""
    monkeypatch.setattr(LoadedPlugin, "triton_target", lambda _: TritonTarget("cpu"))
    monkeypatch.setattr(kernels, "_loaders", {"flaggems": bridge.load})
    for state in ("_kernels", "_absent"):
        monkeypatch.setattr(kernels, state, {})
    yield
    routing.reset()


def test_its_kernels_run_on_tensors_of_the_device_that_it_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "flag_gems", stand_in("CPU"))
    assert sorted(bridge.load()) == ["add_.Tensor", "mm"]
    routing.set({"mm": "flaggems, boxing", "add_.Tensor": "flaggems"})
    x = torch.ones(2, 2, device="flagos")
    with routing.report() as report:
        y = x @ x
        version = x._version
        assert x.add_(1) is x
    assert y.device == torch.device("flagos", 0)
    assert y.tolist() == [[7.0] * 2] * 2
    assert x.tolist() == [[8.0] * 2] * 2
    assert x._version == version + 1
    ran = {row.operator: row.route for row in report.rows}
    assert ran["aten::mm"] == ran["aten::add_.Tensor"] == "flaggems"


def test_one_that_knows_another_device_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flag_gems", stand_in("XPU"))
    said = r"another device \(XPU\) than the backend 'host'"
    with pytest.raises(routing.RouteError, match=said):
        routing.set("mm", "flaggems")
    monkeypatch.setitem(sys.modules, "flag_gems", stand_in("PrivateUse1"))
    assert not bridge.load()["mm"].on_target


def test_without_it_and_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flag_gems", None)
    with pytest.raises(routing.RouteError, match="flag_gems"):
        routing.set("mm", "flaggems")
    monkeypatch.setattr(LoadedPlugin, "triton_target", lambda _: None)
    with pytest.raises(ImportError, match="does not run Triton"):
        bridge.load()
