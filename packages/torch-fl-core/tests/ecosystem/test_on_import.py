"""Owns: hooks on other people's modules: called once, when they are imported, and not before."""

from __future__ import annotations

import importlib
import importlib.resources
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from children import output_of_child

from torch_fl.ecosystem import lightning, on_import


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on sys.path; what is imported from it is forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_hook_is_called_when_the_module_is_imported(packages: Path) -> None:
    (packages / "late_one").mkdir()
    (packages / "late_one" / "__init__.py").write_text("value = 1\n")
    (packages / "late_one" / "part.py").write_text("value = 2\n")
    seen: list[tuple[ModuleType, int]] = []
    for name in ("late_one", "late_one.part"):
        on_import.call(name, lambda module: seen.append((module, module.value)))
    assert not seen
    assert "late_one" not in sys.modules
    module = importlib.import_module("late_one")
    part = importlib.import_module("late_one.part")
    assert seen == [(module, 1), (part, 2)]
    importlib.reload(module)
    assert len(seen) == 2


def test_module_keeps_its_own_loader(packages: Path) -> None:
    (packages / "late_two.py").write_text("def f():\n    return 1\n")
    on_import.call("late_two", lambda module: None)
    module = importlib.import_module("late_two")
    assert inspect.getsource(module.f) == "def f():\n    return 1\n"
    assert type(module.__loader__).__name__ == "SourceFileLoader"
    assert module.__spec__ is not None
    assert module.__spec__.loader is module.__loader__


def test_hook_for_a_module_that_is_there() -> None:
    seen: list[ModuleType] = []
    on_import.call("inspect", seen.append)
    assert seen == [inspect]


def test_missing_module_stays_missing(packages: Path) -> None:
    on_import.call("late_three", lambda module: None)
    with pytest.raises(ModuleNotFoundError, match="late_three"):
        importlib.import_module("late_three")
    (packages / "late_three.py").write_text("")
    importlib.invalidate_caches()
    assert importlib.import_module("late_three")


def test_error_of_a_hook_is_an_error_of_the_import(packages: Path) -> None:
    (packages / "late_four.py").write_text("")

    def fail(module: ModuleType) -> None:
        raise ValueError("from the hook")

    on_import.call("late_four", fail)
    with pytest.raises(ValueError, match="from the hook"):
        importlib.import_module("late_four")


def test_importing_torch_fl_imports_no_library() -> None:
    said = output_of_child(
        "import sys, torch, torch_fl\nprint([n for n in sys.modules if 'lightning' in n])"
    )
    assert said.strip() == "['torch_fl.ecosystem.lightning']"


def _accelerator() -> type:
    class Base:
        pass

    made: type = lightning.accelerator_class(Base)
    return made


@pytest.mark.parametrize(
    ("asked", "got"),
    [(1, [0]), (-1, None), ("1", [0]), ("-1", None), ("0,", [0]), ([0], [0])],
)
def test_devices_of_the_accelerator(asked: int | str | list[int], got: list[int] | None) -> None:
    everything = list(range(torch.accelerator.device_count()))
    assert _accelerator().parse_devices(asked) == (everything if got is None else got)  # type: ignore[attr-defined]


@pytest.mark.parametrize("asked", [65, [64], "64,", 0, [], [-2]])
def test_devices_that_are_not_there(asked: int | str | list[int]) -> None:
    with pytest.raises(ValueError, match="there are"):
        _accelerator().parse_devices(asked)  # type: ignore[attr-defined]


def test_accelerator() -> None:
    accelerator = _accelerator()()
    assert accelerator.name() == "flagos"
    assert accelerator.is_available()
    assert accelerator.get_parallel_devices([0]) == [torch.device("flagos", 0)]
    accelerator.setup_device(torch.device("flagos", 0))
    with pytest.raises(ValueError, match="not flagos"):
        accelerator.setup_device(torch.device("cpu"))
    assert accelerator.get_device_stats("flagos:0")["allocated_bytes.all.current"] >= 0
    accelerator.teardown()
