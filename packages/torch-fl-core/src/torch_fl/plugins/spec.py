"""Owns: the plugin API: its version, its hooks, and the one module that a plugin imports.

    from torch_fl.plugins.spec import Detection, HostRuntime, Identity, hookimpl

docs/plugins.md is the guide. Within one major version hooks, fields with defaults and hook
parameters are only added, and each addition raises the minor version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import pluggy

from torch_fl.plugins.declarations import (
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
    from torch_fl.plugins.machine import Machine
    from torch_fl.plugins.policies import BackendStrategies, Kernel, Policy, Resources

__all__ = [
    "API_VERSION",
    "PROJECT",
    "AbiRuntime",
    "BackendStrategies",
    "Communicator",
    "CompilePolicy",
    "DelegateRuntime",
    "Detection",
    "HostRuntime",
    "Identity",
    "Kernel",
    "PluginSpec",
    "Policy",
    "Profiler",
    "Resources",
    "Routes",
    "Runtime",
    "TritonTarget",
    "hookimpl",
    "hookspec",
]


def __getattr__(name: str) -> object:
    """The values that no selection needs, made when a plugin asks for them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from torch_fl.plugins import capabilities, policies

    return getattr(policies if hasattr(policies, name) else capabilities, name)


API_VERSION = (1, 1)
PROJECT = "torch_fl"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class PluginSpec(Protocol):
    """The hooks. A plugin has the first and `torch_fl_runtime`, and those others that it needs.

    Every hook is called for one plugin alone, never for all of them at once. Before a plugin is
    chosen only `torch_fl_identity` and `torch_fl_detect` are called.
    """

    @hookspec(firstresult=True)
    def torch_fl_identity(self) -> Identity:
        """Who this plugin is. Required."""

    @hookspec(firstresult=True)
    def torch_fl_detect(self, machine: Machine) -> Detection:
        """Whether this plugin's hardware is in the machine.

        Looks at PCI ids and device nodes through `machine`, which is cheap; loads no SDK, imports
        nothing, starts nothing. It runs in a thread of its own, which is given up after a second.
        A plugin without this hook is used only when FLAGOS_PLUGIN names it.
        """

    @hookspec(firstresult=True)
    def torch_fl_runtime(self) -> Runtime:
        """What devices, streams and memory stand on. Required; called when the plugin is chosen.

        May look at the environment, and raises ValueError for a setting that it does not
        understand: the message is what the device's first use raises.
        """

    @hookspec(firstresult=True)
    def torch_fl_routes(self) -> Routes:
        """The routes files in the plugin's wheel."""

    @hookspec(firstresult=True)
    def torch_fl_target_module(self) -> str:
        """Name of the module, such as "torch.cuda", that has what device-generic interfaces lack:
        memory snapshots, memory fractions, pools, external streams, graphs."""

    @hookspec(firstresult=True)
    def torch_fl_triton_target(self) -> TritonTarget:
        """How Triton kernels are compiled for this device."""

    @hookspec(firstresult=True)
    def torch_fl_compile_policies(self) -> Sequence[CompilePolicy]:
        """What the compiler backend must do differently, in the order in which it is done."""

    @hookspec(firstresult=True)
    def torch_fl_communicator(self) -> Communicator:
        """The collectives between this plugin's devices."""

    @hookspec(firstresult=True)
    def torch_fl_profiler(self) -> Profiler:
        """What traces the devices' activity."""

    @hookspec(firstresult=True)
    def torch_fl_environment(self) -> Mapping[str, str]:
        """Lines for reports, such as {"driver": "5.1"}. May load the SDK."""
