"""Owns: the policies of the chosen plugin: when and in which order their hooks are called.

    once, after Triton is imported     strategies, driver_queries, libdevice
    each kernel, before it is compiled options, the target's forced options, signature,
                                       the target's guards, refuse
    a kernel that failed               resources

At each step the policies come in the plugin's order. What went wrong in the first step does not
make `import triton` fail, which others need too: the first kernel for flagos raises it.
"""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch_fl._compat.compiler import triton_backends
from torch_fl.compile import strategies, target
from torch_fl.plugins import selection
from torch_fl.plugins.capabilities import TritonTarget
from torch_fl.plugins.hooks import PluginError
from torch_fl.plugins.policies import HOOKS, Kernel, Resources

__all__ = ["KernelRefused", "Policies", "load"]

_log = logging.getLogger("torch_fl.compile")


class KernelRefused(RuntimeError):
    """A kernel that the device cannot run, before its compiler saw it: why, and what to change."""


class Policies:
    """The policies of one plugin, for its Triton target."""

    def __init__(
        self, profile: TritonTarget, policies: Mapping[str, object], state: Mapping[str, Any]
    ) -> None:
        """`policies`: implementations by name, in order. `state`: what drivers are bound to."""
        self.profile = profile
        self._policies = policies
        self._state = state
        self._guards = [pkgutil.resolve_name(guard) for guard in profile.guards]
        self._failure: Exception | None = None

    def install(self) -> None:
        """What is done once, after Triton is imported."""
        try:
            for policy, hook in self._having("strategies"):
                strategies.register(policy, hook())
            queries: dict[str, object] = {}
            for _, hook in self._having("driver_queries"):
                queries |= hook(self._state)
            functions: dict[str, str] = {}
            for _, hook in self._having("libdevice"):
                functions |= hook()
            if queries:
                triton_backends.bind_driver(self.profile.key, queries)
            if functions:
                triton_backends.fill_libdevice(self.profile.key, functions, self.profile.backend)
        except Exception as error:
            self._failure = error
            _log.error("Triton kernels for flagos cannot be compiled: %s", error)

    def check(self) -> None:
        """Raises what went wrong in `install`."""
        if self._failure is not None:
            raise RuntimeError(
                f"Triton kernels cannot be compiled for the plugin {target.by_name()}: "
                f"{self._failure}"
            ) from self._failure

    @property
    def backend(self) -> str:
        """The name in Triton's targets that they are for."""
        return self.profile.backend

    @property
    def warp_size(self) -> int | None:
        """What Triton's targets are to have; None where they are right."""
        return self.profile.warp_size

    def prepare(self, **fields: Any) -> Kernel:
        """The kernel as the maker's compiler is to get it. Raises KernelRefused."""
        self.check()
        kernel = Kernel(**fields)
        for _, hook in self._having("options"):
            kernel = replace(kernel, options={**kernel.options, **hook(kernel)})
        kernel = replace(kernel, options={**kernel.options, **self.profile.options})
        for policy, hook in self._having("signature"):
            kernel = replace(kernel, signature=_rewritten(policy, kernel, hook(kernel)))
        for guard in (*self._guards, *(hook for _, hook in self._having("refuse"))):
            if why := guard(kernel):
                raise KernelRefused(
                    f"{kernel.name} cannot be compiled for {kernel.backend}:{kernel.arch}: {why}"
                )
        return kernel

    def resources(self, kernel: Kernel, error: Exception) -> Resources | None:
        """What the maker's error says of resources, by the first policy that can tell."""
        for _, hook in self._having("resources"):
            if found := hook(kernel, error):
                return Resources(*found)
        return None

    def _having(self, hook: str) -> list[tuple[str, Callable[..., Any]]]:
        return [
            (name, getattr(policy, hook))
            for name, policy in self._policies.items()
            if hasattr(policy, hook)
        ]


def _rewritten(policy: str, kernel: Kernel, types: Mapping[str, str]) -> Mapping[str, str]:
    if strange := sorted(set(types) - set(kernel.signature)):
        raise PluginError(
            f"The policy {policy!r} rewrites arguments that {kernel.name} does not have: "
            f"{', '.join(strange)}."
        )
    return {**kernel.signature, **types}


def load(state: Mapping[str, Any]) -> Policies | None:
    """The chosen plugin's; None where it has no Triton target.

    Raises PluginError where a policy cannot be imported, or has no hook at all.
    """
    plugin = selection.current().plugin
    profile = target.profile()
    if plugin is None or profile is None:
        return None
    found: dict[str, object] = {}
    for policy in plugin.compile_policies():
        try:
            implementation = pkgutil.resolve_name(policy.implementation)
        except (ImportError, AttributeError) as error:
            raise PluginError(
                f"The policy {policy.name!r} of {plugin} cannot be imported from "
                f"{policy.implementation}: {error}"
            ) from error
        if not any(hasattr(implementation, hook) for hook in HOOKS):
            raise PluginError(
                f"The policy {policy.name!r} of {plugin} has no hook: {policy.implementation} has "
                f"none of {', '.join(HOOKS)}."
            )
        if policy.name in found:
            raise PluginError(f"{plugin} has two policies of the name {policy.name!r}.")
        found[policy.name] = implementation
    return Policies(profile, found, state)
