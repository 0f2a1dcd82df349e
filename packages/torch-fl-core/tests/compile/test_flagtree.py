"""Owns: tests of telling FlagTree's Triton from others, and of what is said when it is not there.

The packages are folders with the files by which each is told; nothing imports them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from children import run_child

import torch_fl.compile
from torch_fl.compile import strategies
from torch_fl.plugins.spec import BackendStrategies


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder before all others on the path, in a process that has not imported Triton."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def _package(site: Path, distribution: str, version: str, *modules: str) -> None:
    (site / "triton").mkdir()
    for module in ("__init__", *modules):
        (site / "triton" / f"{module}.py").write_text("raise ImportError('must not be imported')")
    info = site / f"{distribution}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
    )


def test_flagtree_is_told_by_its_module(site: Path) -> None:
    _package(site, "flagtree", "0.7.0+3.6", "_flagtree_spec")
    assert torch_fl.compile.is_flagtree_active()
    assert torch_fl.compile.flagtree_version() == "0.7.0+3.6"
    torch_fl.compile.require_flagtree()


def test_an_older_flagtree_is_told_by_its_distribution(site: Path) -> None:
    _package(site, "flagtree", "0.5.0+makers3.1")
    assert torch_fl.compile.is_flagtree_active()
    assert torch_fl.compile.flagtree_version() == "0.5.0+makers3.1"


def test_a_distribution_that_lies_behind_another_triton_is_not_active(
    site: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path_factory.mktemp("other")
    monkeypatch.syspath_prepend(str(other))
    _package(site, "flagtree", "0.5.0")
    _package(other, "triton", "3.7.1")
    assert not torch_fl.compile.is_flagtree_active()
    assert torch_fl.compile.flagtree_version() is None


def test_stock_triton_is_refused_with_the_next_step(site: Path) -> None:
    _package(site, "triton", "3.7.1")
    assert not torch_fl.compile.is_flagtree_active()
    with pytest.raises(RuntimeError, match=r"active Triton is Triton 3\.7\.1 in") as raised:
        torch_fl.compile.require_flagtree()
    assert "pip uninstall triton" in str(raised.value)
    assert "unset FLAGOS_USE_FLAGTREE" in str(raised.value)


def test_no_triton_is_refused_with_the_next_step(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(site)])
    assert not torch_fl.compile.is_flagtree_active()
    with pytest.raises(RuntimeError, match="no package 'triton' at all"):
        torch_fl.compile.require_flagtree()


def test_the_variable_asserts_and_does_not_switch(site: Path) -> None:
    _package(site, "triton", "3.7.1")
    child = run_child(
        """
        import torch, torch_fl, sys
        sys.modules.pop("triton", None)
        try:
            torch.compile(lambda x: x + 1)(torch.ones(4, device="flagos"))
        except Exception as error:
            print(error)
        """,
        PYTHONPATH=str(site),
        FLAGOS_USE_FLAGTREE="1",
        FLAGOS_PLUGIN="host",
    )
    assert "FlagTree is required, but the active Triton is Triton 3.7.1" in child.stdout
    assert child.returncode == 0, child.stderr


# What FlagTree's backend for Ascend asks of torch_npu, and any other category.
_STRATEGIES = [
    "version_hash",
    "cxx_abi",
    "type_convert",
    "get_device_interface",
    "get_empty_tensor",
    "get_tensor_params_shape",
    "get_cc_cmd",
    "get_current_device",
    "set_current_device",
    "get_current_stream",
    "header_file",
    "allocate_memory",
    "allocate_sync_block_lock",
    "pre_launch",
    "async_launch",
]


class _Registry:
    """As FlagTree's: made when it is first used, behind an object that registers."""

    class _Made:
        def __init__(self) -> None:
            self.strategies: dict[str, dict[str, object]] = {
                "torch_npu": dict.fromkeys(_STRATEGIES, print)
            }

    def __init__(self) -> None:
        self._instance: _Registry._Made | None = None

    def _get_instance(self) -> _Made:
        self._instance = self._instance or self._Made()
        return self._instance

    def register(self, category: str, name: str):  # type: ignore[no-untyped-def]
        def add(function: object) -> object:
            there = self._get_instance().strategies.setdefault(category, {})
            if name in there:
                raise ValueError(f"{name} is already registered")
            there[name] = function
            return function

        return add


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> _Registry:
    made = _Registry()
    monkeypatch.setattr(sys.modules[__name__], "the_registry", made, raising=False)
    return made


def _strategies(*, without: str = "", like: str = "torch_npu") -> BackendStrategies:
    functions = {name: print for name in _STRATEGIES if name != without}
    return BackendStrategies(f"{__name__}:the_registry", "flagos", functions, like=like)


def test_a_category_with_all_15_strategies_is_registered_once(registry: _Registry) -> None:
    assert len(_STRATEGIES) == 15
    strategies.register("npu", _strategies())
    strategies.register("npu", _strategies())
    assert set(registry._get_instance().strategies["flagos"]) == set(_STRATEGIES)


def test_a_missing_strategy_is_named_and_nothing_is_registered(registry: _Registry) -> None:
    with pytest.raises(RuntimeError, match=r"that 'torch_npu' has.*: pre_launch \(1 of 15\)"):
        strategies.register("npu", _strategies(without="pre_launch"))
    assert "flagos" not in registry._get_instance().strategies


def test_a_registry_or_category_that_is_not_there_is_named(registry: _Registry) -> None:
    with pytest.raises(RuntimeError, match=r"'mindspore'.*does not have \(it has torch_npu\)"):
        strategies.register("npu", _strategies(like="mindspore"))
    absent = BackendStrategies("triton_that_is_not:registry", "flagos", {})
    with pytest.raises(RuntimeError, match="'npu' needs triton_that_is_not:registry, which"):
        strategies.register("npu", absent)
    strange = BackendStrategies(f"{__name__}:_STRATEGIES", "flagos", {})
    with pytest.raises(RuntimeError, match="is no registry of strategies"):
        strategies.register("npu", strange)


def test_the_makers_triton_is_told_of_the_category_once(
    registry: _Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_BACKEND", "")
    monkeypatch.delenv("TRITON_BACKEND")
    functions = dict.fromkeys(_STRATEGIES, print)
    reference = f"{__name__}:the_registry"
    told = BackendStrategies(
        reference, "flagos", functions, like="torch_npu", environment={"TRITON_BACKEND": "flagos"}
    )
    import os

    strategies.register("npu", told)
    assert os.environ["TRITON_BACKEND"] == "flagos"
    monkeypatch.setenv("TRITON_BACKEND", "mindspore")
    strategies.register("npu", told)
    assert os.environ["TRITON_BACKEND"] == "mindspore"  # the user's choice
