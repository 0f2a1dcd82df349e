"""Owns: tests that what torch.flagos offers is documented and typed."""

from __future__ import annotations

import inspect
import sys

import pytest
import torch

MODULES = sorted(
    name for name in sys.modules if name == "torch_fl.flagos" or name.startswith("torch_fl.flagos.")
)
MEASURES = ("memory", "bytes", "elapsed")


def _offered() -> dict[str, object]:
    """Every public function and class of ours, by its path, with the public methods of classes."""
    found: dict[str, object] = {}
    for module in map(sys.modules.__getitem__, MODULES):
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if not getattr(value, "__module__", "").startswith(("torch_fl.flagos", "torch.flagos")):
                continue
            found[f"{value.__module__}.{name}"] = value
            if inspect.isclass(value) and value.__module__.startswith("torch_fl.flagos"):
                for method, member in vars(value).items():
                    if not method.startswith("_") and not isinstance(
                        member, (int, str, type(None))
                    ):
                        found[f"{value.__module__}.{name}.{method}"] = member
    return found


OFFERED = _offered()


def test_there_is_something_to_look_at() -> None:
    assert len(OFFERED) > 130
    assert set(MODULES) >= {"torch_fl.flagos.memory.history", "torch_fl.flagos.amp.common"}


@pytest.mark.parametrize("module", MODULES)
def test_modules_say_what_they_own(module: str) -> None:
    assert (sys.modules[module].__doc__ or "").startswith("Owns: ")


def test_every_name_has_a_docstring_of_its_own() -> None:
    bare = []
    for path, value in OFFERED.items():
        function = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        text = getattr(function, "__doc__", None)
        if not text or len(text) < 15:
            bare.append(path)
    assert bare == []


def test_every_function_is_typed() -> None:
    untyped = []
    for path, value in OFFERED.items():
        function = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        if not inspect.isfunction(function):
            continue
        signature = inspect.signature(function)
        parameters = [p for n, p in signature.parameters.items() if n not in ("self", "cls")]
        if signature.return_annotation is inspect.Signature.empty or any(
            p.annotation is inspect.Parameter.empty for p in parameters
        ):
            untyped.append(path)
    assert untyped == []


def test_figures_come_with_their_units() -> None:
    without = [
        name
        for name in torch.flagos.memory.__all__
        if name.startswith(("memory_", "max_memory_", "mem_get", "device_memory"))
        and name not in ("memory_stats_as_nested_dict", "memory_snapshot", "memory_summary")
        and "ytes" not in (getattr(torch.flagos.memory, name).__doc__ or "")
    ]
    assert without == []
    for sensor, unit in (
        ("temperature", "Celsius"),
        ("power_draw", "Milliwatts"),
        ("clock_rate", "Megahertz"),
        ("utilization", "Percent"),
    ):
        assert unit in (getattr(torch.flagos, sensor).__doc__ or "")
