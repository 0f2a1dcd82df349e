"""Owns: registering a plugin's strategies with the registry of a maker's Triton.

A maker's Triton may ask the framework for what it needs through such a registry, by a category for
each framework: any may be added, and a strategy that is missing would only be noticed when a kernel
needs it. So all are compared when they are registered.
"""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

from torch_fl.plugins.policies import BackendStrategies

__all__ = ["register"]


def register(policy: str, strategies: BackendStrategies) -> None:
    """Registers them, those that are there already left as they are.

    Raises RuntimeError that names what is missing: the registry, the category to be covered, or
    strategies. Nothing is registered then.
    """
    registry = _registry(policy, strategies.registry)
    there = _categories(policy, strategies.registry, registry)
    wanted = {*strategies.required, *_to_cover(policy, strategies, there)}
    if missing := sorted(wanted - set(strategies.functions)):
        like = f" that {strategies.like!r} has" if strategies.like else ""
        raise RuntimeError(
            f"The policy {policy!r} does not cover the strategies{like} in {strategies.registry}: "
            f"{', '.join(missing)} ({len(missing)} of {len(wanted)}). This Triton is newer than "
            "the plugin: upgrade the plugin, or install the Triton that its documentation names."
        )
    present: Mapping[str, object] = there.get(strategies.category, {})
    for name, function in strategies.functions.items():
        if name not in present:
            registry.register(strategies.category, name)(function)
    for variable, value in strategies.environment.items():
        os.environ.setdefault(variable, value)


def _registry(policy: str, reference: str) -> Any:
    try:
        return pkgutil.resolve_name(reference)
    except (ImportError, AttributeError) as error:
        raise RuntimeError(
            f"The policy {policy!r} needs {reference}, which the active Triton does not have "
            f"({error}): install the Triton that the plugin's documentation names."
        ) from error


def _categories(
    policy: str, reference: str, registry: Any
) -> Mapping[str, Mapping[str, Callable[..., Any]]]:
    # FlagTree's is made when it is first used, behind an object that only registers and executes.
    made = registry._get_instance() if hasattr(registry, "_get_instance") else registry
    categories = getattr(made, "strategies", None)
    if not isinstance(categories, Mapping) or not hasattr(registry, "register"):
        raise RuntimeError(
            f"{reference}, which the policy {policy!r} needs, is no registry of strategies in the "
            "active Triton: install the Triton that the plugin's documentation names."
        )
    return categories


def _to_cover(
    policy: str, strategies: BackendStrategies, there: Mapping[str, Mapping[str, object]]
) -> Mapping[str, object]:
    if not strategies.like:
        return {}
    if strategies.like not in there:
        raise RuntimeError(
            f"The policy {policy!r} is measured by the category {strategies.like!r} of "
            f"{strategies.registry}, which the active Triton does not have (it has "
            f"{', '.join(sorted(there)) or 'none'}): install the Triton that the plugin's "
            "documentation names."
        )
    return there[strategies.like]
