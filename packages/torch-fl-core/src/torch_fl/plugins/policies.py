"""Owns: the hooks of a compile policy, and the values that go in and out of them.

A policy is how a maker's compiler differs from what the core and Inductor take for granted. The
core owns the hooks and when they are called (`torch_fl.compile.policies`); a plugin names its
policies in `torch_fl_compile_policies` and imports from here through `torch_fl.plugins.spec`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from torch_fl.plugins.capabilities import check_reference, check_text


@dataclass(frozen=True)
class Kernel:
    """A Triton kernel that is about to be compiled for the plugin's device.

    `name`, `source`: of its Python function. `signature`: Triton's types by argument, in order:
    "*fp32", "i32", "constexpr". `constants`: values of constexpr arguments by name. `options`: what
    `triton.compile` is given. `backend`, `arch`, `warp_size`: the target.
    """

    name: str
    source: str
    signature: Mapping[str, str]
    constants: Mapping[str, object]
    options: Mapping[str, object]
    backend: str
    arch: int | str
    warp_size: int


class Resources(NamedTuple):
    """A kernel needs more of something than there is: `needed` of `limit`, such as bytes, of
    `name`, such as "shared memory"."""

    needed: int
    limit: int
    name: str


@dataclass(frozen=True)
class BackendStrategies:
    """What a maker's Triton asks a framework for, through a registry of its own.

    `registry`: reference of the registry, which has `register(category, name)`, a decorator, and
    `strategies`, a dict of dicts. `category`: the word under which these are registered. `like`:
    the category that must be covered: each of its strategies must be in `functions`. `required`:
    strategies that must be there in any case. `functions`: the strategies, by name. `environment`:
    variables by which the maker's Triton is told of the category, set where they are not.
    """

    registry: str
    category: str
    functions: Mapping[str, Callable[..., Any]]
    like: str = ""
    required: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_reference("registry", self.registry)
        check_text("category", self.category)
        if not self.category or self.category == self.like:
            raise ValueError("category must be a word of its own for these strategies.")
        for name, function in self.functions.items():
            if not callable(function):
                raise TypeError(f"The strategy {name!r} must be a function, but is {function!r}.")
        for words in self.environment.items():
            for word in words:
                check_text("environment", word)


class Policy(Protocol):
    """The hooks of a policy, in the order in which they are called. Each may be left out.

    Once, right after Triton is imported and before it makes its driver: `strategies`,
    `driver_queries`, `libdevice`, each for all policies in the plugin's order. For every kernel of
    the plugin's device, in front of `triton.compile`: `options`, `signature`, then `refuse`, each
    seeing what those before it changed. Where compiling fails: `resources`.
    """

    def strategies(self) -> BackendStrategies:
        """Registers a category with the maker's registry."""

    def driver_queries(self, state: Mapping[str, Callable[..., Any]]) -> Mapping[str, object]:
        """Attributes of the maker's driver class that are replaced, functions as static methods.

        `state` has the device's own: "current_device", "set_device", "device_count", "raw_stream"
        (from a device's index), "properties", "is_available".
        """

    def libdevice(self) -> Mapping[str, str]:
        """References of the functions that do what `triton.language.extra.libdevice` has, by its
        names: {"exp": "triton.language.extra.x.libdevice:exp"}."""

    def options(self, kernel: Kernel) -> Mapping[str, object]:
        """Options of `triton.compile` to add or replace. The target's own are forced over these."""

    def signature(self, kernel: Kernel) -> Mapping[str, str]:
        """Types to replace, by argument."""

    def refuse(self, kernel: Kernel) -> str | None:
        """Why this kernel cannot be compiled, and what to change; None where it can."""

    def resources(self, kernel: Kernel, error: Exception) -> Resources | None:
        """What `error`, raised by the maker's compiler, says of resources; None if nothing. It
        becomes Triton's OutOfResources, which makes autotuning try another configuration."""


HOOKS = tuple(name for name in vars(Policy) if not name.startswith("_"))
"""Their names, in order."""
