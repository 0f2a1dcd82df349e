"""Changing a module when it is first imported."""

from __future__ import annotations

import importlib
import inspect
import sys
from typing import TYPE_CHECKING

import pytest

from torch_fl._compat.importing import when_imported

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


@pytest.fixture
def module_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "module_of_test_importing"
    (tmp_path / f"{name}.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    return name


def double(module: ModuleType) -> None:
    module.value *= 2


def test_a_module_is_changed_once_when_it_is_imported(
    module_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    finders = [*sys.meta_path]
    when_imported(module_name, double)
    assert module_name not in sys.modules
    module = importlib.import_module(module_name)
    monkeypatch.setitem(sys.modules, module_name, module)
    assert module.value == 2
    assert module.__spec__ is not None
    assert module.__spec__.loader is not None
    assert sys.meta_path == finders
    assert importlib.import_module(module_name).value == 2


def test_an_imported_module_is_changed_at_once(
    module_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module_name, importlib.import_module(module_name))
    when_imported(module_name, double)
    assert importlib.import_module(module_name).value == 2


def test_a_module_that_is_not_there_fails_as_always() -> None:
    when_imported("no_such_module_of_test_importing", double)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_module_of_test_importing")


def test_a_module_keeps_its_own_loader_and_several_changes_are_all_made(module_name: str) -> None:
    when_imported(module_name, double)
    when_imported(module_name, double)
    module = importlib.import_module(module_name)
    assert module.value == 4
    assert type(module.__loader__).__name__ == "SourceFileLoader"
    assert inspect.getsource(module) == "value = 1\n"


def test_an_error_of_a_change_is_an_error_of_the_import(module_name: str) -> None:
    def fail(module: ModuleType) -> None:
        raise ValueError("from the change")

    when_imported(module_name, fail)
    with pytest.raises(ValueError, match="from the change"):
        importlib.import_module(module_name)
