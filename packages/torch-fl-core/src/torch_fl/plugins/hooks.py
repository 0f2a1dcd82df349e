"""Owns: the hooks of one plugin, called one at a time, with what they return checked.

Every plugin has a pluggy manager of its own, so none can reach another through a hook.
"""

from __future__ import annotations

import inspect
import types
from typing import TypeVar

import pluggy

from torch_fl.plugins import adapting
from torch_fl.plugins.records import describe, sentence
from torch_fl.plugins.spec import PROJECT, PluginSpec, hookimpl

Value = TypeVar("Value")


class PluginError(RuntimeError):
    """A hook raised, or returned something else than it promises. The text names both."""


class Hooks:
    """The hooks of the plugin that people know as `owner`."""

    def __init__(self, owner: str, manager: pluggy.PluginManager) -> None:
        self.owner = owner
        self.manager = manager

    def has(self, hook: str) -> bool:
        """Whether the plugin has this hook."""
        return bool(getattr(self.manager.hook, hook).get_hookimpls())

    def call(self, hook: str, *kinds: type[Value], **arguments: object) -> Value | None:
        """What the hook returns, one of `kinds`; None if the plugin does not have it.

        Raises PluginError, with the plugin's own exception as its cause.
        """
        if not self.has(hook):
            return None
        try:
            value: object = getattr(self.manager.hook, hook)(**arguments)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: a plugin does not end the process
            message = f"{hook} of {self.owner} raised {sentence(describe(error))}"
            raise PluginError(message) from error
        if not isinstance(value, kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise PluginError(self.wrong(hook, value, wanted))
        return value

    def wrong(self, hook: str, value: object, wanted: str) -> str:
        """The sentence for a hook that returned something else."""
        kind = "None" if value is None else f"an object of type {type(value).__name__}"
        return f"{hook} of {self.owner} returned {kind}, but must return {wanted}."


def attach(owner: str, plugin: object) -> tuple[Hooks, tuple[str, ...]]:
    """The hooks of `plugin`, and a sentence for each thing about them that is not quite right.

    Raises TypeError when `plugin` is nothing that has hooks.
    """
    if plugin is None or inspect.isclass(plugin) or inspect.isroutine(plugin):
        kind = "None" if plugin is None else "a class" if inspect.isclass(plugin) else "a function"
        raise TypeError(
            f"The entry point of {owner} names {kind}: it must name a module that has the hooks as "
            f"functions, or an object that has them as methods."
        )
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(PluginSpec)
    adapted = types.ModuleType(owner)
    warnings: list[str] = []
    for attribute in dir(plugin):
        options = manager.parse_hookimpl_opts(plugin, attribute)
        if options is None:
            warning = adapting.unmarked(plugin, attribute)
            warnings += [warning] if warning else []
            continue
        hook = options.get("specname") or attribute
        if hook not in adapting.parameters():
            warnings.append(adapting.unknown(hook))
            continue
        function, strange = adapting.adapt(hook, getattr(plugin, attribute))
        warnings += strange
        setattr(adapted, hook, hookimpl(function))
    manager.register(adapted)
    return Hooks(owner, manager), tuple(warnings)
