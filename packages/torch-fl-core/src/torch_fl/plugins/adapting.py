"""Owns: hooks written for a newer or an older core, made to fit this one.

A hook that this core does not know is left out, a parameter that it does not know gets its default,
else None. Each such thing is a sentence for the plugin's record.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch_fl.plugins.spec import PluginSpec

_PREFIX = "torch_fl_"


@functools.cache
def parameters() -> dict[str, tuple[str, ...]]:
    """The hooks that this core has, with the names of their parameters."""
    return {
        name: tuple(inspect.signature(hook).parameters)[1:]  # without self
        for name, hook in vars(PluginSpec).items()
        if name.startswith(_PREFIX)
    }


def adapt(hook: str, function: Callable[..., Any]) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """`function` with exactly the parameters that `hook` has in this core, and what was strange."""
    known = parameters()[hook]
    passed: list[str] = []
    absent: dict[str, None] = {}
    warnings: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in known:
            passed.append(parameter.name)
        elif parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            if parameter.default is parameter.empty:
                absent[parameter.name] = None
            gets = "None" if parameter.name in absent else "its default"
            warnings.append(
                f"{hook} has a parameter {parameter.name!r}, which this torch-fl-core does not "
                f"know: it gets {gets}. Upgrade torch-fl-core if the plugin needs it."
            )

    def call(values: dict[str, object]) -> Any:
        return function(**{name: values[name] for name in passed}, **absent)

    return _SHAPES[known](call), tuple(warnings)


def unknown(hook: str) -> str:
    """The sentence for a hook that this core does not have."""
    near = difflib.get_close_matches(hook, parameters(), n=1)
    what = f"did you mean {near[0]}?" if near else "upgrade torch-fl-core if the plugin needs it."
    return f"{hook} is not a hook of this torch-fl-core and is ignored: {what}"


def unmarked(plugin: object, attribute: str) -> str | None:
    """The sentence for a function that has a hook's name and is none, because it is not marked."""
    if attribute in parameters() and inspect.isroutine(
        inspect.getattr_static(plugin, attribute, None)
    ):
        return f"{attribute} is not marked with @hookimpl and is ignored: mark it."
    return None


_Call = Callable[[dict[str, object]], Any]


def _without(call: _Call) -> Callable[..., Any]:
    def hook() -> Any:
        return call({})

    return hook


def _with_machine(call: _Call) -> Callable[..., Any]:
    def hook(machine: object) -> Any:
        return call({"machine": machine})

    return hook


# pluggy reads a function's own parameters: one shape for each list of parameters in the spec.
_SHAPES: dict[tuple[str, ...], Callable[[_Call], Callable[..., Any]]] = {
    (): _without,
    ("machine",): _with_machine,
}
