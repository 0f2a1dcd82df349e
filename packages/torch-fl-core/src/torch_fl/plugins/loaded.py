"""Owns: a plugin that can be used: its hooks as methods that return what they promise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from torch_fl.plugins.hooks import Hooks, PluginError
from torch_fl.plugins.records import named
from torch_fl.plugins.spec import (
    AbiRuntime,
    DelegateRuntime,
    Detection,
    HostRuntime,
    Identity,
    Routes,
    Runtime,
)

if TYPE_CHECKING:
    from torch_fl.plugins.capabilities import (
        Communicator,
        CompilePolicy,
        Profiler,
        TritonTarget,
    )


@dataclass(frozen=True)
class LoadedPlugin:
    """One plugin. Each method calls one hook, and returns None where the plugin does not have it.

    `detection` is None where looking for the hardware failed or the plugin does not look. Methods
    raise PluginError, with the plugin's own exception as its cause.
    """

    name: str
    distribution: str | None
    version: str | None
    identity: Identity
    detection: Detection | None
    hooks: Hooks = field(repr=False, compare=False)

    def __str__(self) -> str:
        return named(self.name, self.distribution, self.version)

    def runtime(self) -> Runtime:
        """What devices, streams and memory stand on."""
        hook = "torch_fl_runtime"
        runtime = self.hooks.call(hook, HostRuntime, DelegateRuntime, AbiRuntime)
        assert runtime is not None, "what has no such hook is not loaded"
        return cast(Runtime, runtime)

    def routes(self) -> Routes | None:
        """Its routes files."""
        return self.hooks.call("torch_fl_routes", Routes)

    def target_module(self) -> str | None:
        """Name of the module, such as "torch.cuda", for what device-generic interfaces lack."""
        return self.hooks.call("torch_fl_target_module", str)

    def triton_target(self) -> TritonTarget | None:
        """How Triton kernels are compiled for it."""
        from torch_fl.plugins.capabilities import TritonTarget

        return self.hooks.call("torch_fl_triton_target", TritonTarget)

    def compile_policies(self) -> tuple[CompilePolicy, ...]:
        """What the compiler backend does differently, in order; empty without the hook."""
        from torch_fl.plugins.capabilities import CompilePolicy

        hook = "torch_fl_compile_policies"
        policies: Sequence[CompilePolicy] = self.hooks.call(hook, list, tuple) or ()
        if not all(isinstance(policy, CompilePolicy) for policy in policies):
            raise PluginError(self.hooks.wrong(hook, policies, "CompilePolicy alone in it"))
        return tuple(policies)

    def communicator(self) -> Communicator | None:
        """The collectives between its devices."""
        from torch_fl.plugins.capabilities import Communicator

        return self.hooks.call("torch_fl_communicator", Communicator)

    def profiler(self) -> Profiler | None:
        """What traces the devices' activity."""
        from torch_fl.plugins.capabilities import Profiler

        return self.hooks.call("torch_fl_profiler", Profiler)

    def environment(self) -> dict[str, str]:
        """Lines for reports; empty without the hook."""
        hook = "torch_fl_environment"
        lines: Mapping[str, str] = self.hooks.call(hook, Mapping) or {}  # type: ignore[type-abstract]
        if not all(isinstance(word, str) for line in lines.items() for word in line):
            raise PluginError(self.hooks.wrong(hook, lines, "a mapping of text to text"))
        return dict(lines)
