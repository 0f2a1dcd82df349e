"""Owns: tests that torch.flagos has the names of torch.cuda, with arguments of the same names."""

from __future__ import annotations

import importlib
import inspect
import types
import typing
from typing import TYPE_CHECKING

import pytest
import torch
from excluded_names import EXCLUDED

import torch_fl  # noqa: F401  (makes the device)

if TYPE_CHECKING:
    from collections.abc import Callable

SUBMODULES = [
    "",
    ".amp",
    ".amp.autocast_mode",
    ".amp.common",
    ".amp.grad_scaler",
    ".graphs",
    ".memory",
    ".random",
    ".sparse",
    ".streams",
]
# torch.cuda has them from torch, and its documentation names them as its own.
DOCUMENTED = {"AcceleratorError", "OutOfMemoryError"}
# The backend's own object comes back from these, so its methods are not ours to have.
MADE_BY_THE_BACKEND = {"CUDAGraph", "CUDAPluggableAllocator", "MemPool", "graph"}


def _is_own(name: str, value: object, module: str) -> bool:
    if isinstance(value, types.ModuleType):
        return value.__name__.startswith(f"{module}.")
    owner = getattr(value, "__module__", None)
    if owner is None:
        return not hasattr(typing, name)
    return owner.startswith(module)


def _public(submodule: str) -> set[str]:
    """Public names of torch.cuda's module that it did not merely import."""
    module = importlib.import_module(f"torch.cuda{submodule}")
    names = {
        name
        for name in dir(module)
        if not name.startswith("_") and _is_own(name, getattr(module, name), module.__name__)
    }
    return names | set(getattr(module, "__all__", ())) | (DOCUMENTED if not submodule else set())


def _pairs() -> list[tuple[str, object, object]]:
    pairs: list[tuple[str, object, object]] = []
    for submodule in SUBMODULES:
        theirs = importlib.import_module(f"torch.cuda{submodule}")
        ours = importlib.import_module(f"torch.flagos{submodule}")
        pairs += (
            (f"{submodule}.{name}", getattr(theirs, name), getattr(ours, name, None))
            for name in sorted(_public(submodule) - set(EXCLUDED))
        )
    return pairs


PAIRS = _pairs()


@pytest.mark.parametrize("submodule", SUBMODULES)
def test_every_name_is_there_but_for_the_exclusions(submodule: str) -> None:
    ours = importlib.import_module(f"torch.flagos{submodule}")
    names = _public(submodule)
    missing = sorted(name for name in names - set(EXCLUDED) if not hasattr(ours, name))
    excluded = names & set(EXCLUDED)
    present = len(names) - len(excluded) - len(missing)
    print(f"torch.flagos{submodule}: {present} of {len(names)} names, {len(excluded)} excluded")
    assert missing == []
    assert len(names) >= (120 if submodule == "" else 1), "the comparison itself has found names"


def test_exclusions_are_no_larger_than_they_must_be() -> None:
    assert {name for name in EXCLUDED if hasattr(torch.flagos, name)} == set()
    assert len(EXCLUDED) <= 13
    assert all(EXCLUDED.values())


def test_imports_by_the_names_of_cuda() -> None:
    for submodule in SUBMODULES[1:]:
        ours = importlib.import_module(f"torch.flagos{submodule}")
        holder = torch.flagos
        for part in submodule.split(".")[1:]:
            holder = getattr(holder, part)
        assert holder is ours
        assert importlib.import_module(f"torch_fl.flagos{submodule}") is ours


def _parameters(value: Callable[..., object]) -> dict[str, inspect.Parameter] | None:
    try:
        return dict(inspect.signature(value).parameters)
    except (TypeError, ValueError):  # written in C without a signature
        return None


def _refused(theirs: Callable[..., object], ours: Callable[..., object]) -> str | None:
    """What a call by torch.cuda's arguments would stumble over."""
    wanted, got = _parameters(theirs), _parameters(ours)
    if wanted is None or got is None:
        return None
    kinds = {parameter.kind for parameter in got.values()}
    star, stars = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    named = [name for name, p in wanted.items() if p.kind not in (star, stars)]
    absent = [name for name in named if name not in got and stars not in kinds]
    if absent:
        return f"has no parameter {absent}"
    order = [name for name in got if name in named]
    if order != [name for name in named if name in got]:
        return f"parameters in the order {order}"
    required = {
        name
        for name, p in got.items()
        if p.default is p.empty and p.kind not in (star, stars) and name not in named
    }
    if required and star not in {p.kind for p in wanted.values()}:
        return f"requires {sorted(required)} besides"
    optional = {name for name in named if wanted[name].default is not inspect.Parameter.empty}
    hard = {
        name for name in optional if name in got and got[name].default is inspect.Parameter.empty
    }
    return f"requires {sorted(hard)}" if hard else None


def test_calls_by_the_arguments_of_cuda_are_understood() -> None:
    compared, wrong = 0, {}
    for name, theirs, ours in PAIRS:
        assert callable(theirs) == callable(ours) or isinstance(ours, type(theirs)), name
        if callable(theirs):
            compared += 1
            if (refused := _refused(theirs, ours)) is not None:
                wrong[name] = refused
    assert wrong == {}
    assert compared > 150


def test_classes_have_the_public_methods_of_cudas() -> None:
    compared, wrong = 0, {}
    for name, theirs, ours in PAIRS:
        if not (inspect.isclass(theirs) and inspect.isclass(ours)):
            continue
        if name.rpartition(".")[2] in MADE_BY_THE_BACKEND:
            continue
        compared += 1
        for method, value in vars(theirs).items():
            if method.startswith("_"):
                continue
            if not hasattr(ours, method):
                wrong[f"{name}.{method}"] = "missing"
            elif callable(value) and (refused := _refused(value, getattr(ours, method))):
                wrong[f"{name}.{method}"] = refused
    assert wrong == {}
    assert compared > 20
