"""Owns: what flagos' graphs are compiled for, and whether this process has what that needs.

Two roads lead through Inductor. Where flagos stands on a device that Inductor knows, a graph is
renamed to it (`regions`). Where it does not, and the plugin names a Triton target, flagos itself is
the device that Inductor generates Triton kernels for (`triton_device`).
"""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

import torch

from torch_fl import settings
from torch_fl.compile import flagtree
from torch_fl.plugins import selection
from torch_fl.plugins.capabilities import TritonTarget
from torch_fl.plugins.loaded import LoadedPlugin
from torch_fl.plugins.spec import AbiRuntime, DelegateRuntime

__all__ = ["arch", "by_name", "check", "is_triton_device", "profile", "properties", "warp_size"]

_DEFAULT_WARP_SIZE = 32


def profile() -> TritonTarget | None:
    """The plugin's Triton target; None where it names none."""
    plugin = selection.current().plugin
    return _profile(plugin) if plugin else None


@functools.lru_cache(maxsize=1)
def _profile(plugin: LoadedPlugin) -> TritonTarget | None:
    return plugin.triton_target()


def is_triton_device() -> bool:
    """Whether flagos itself is Inductor's Triton device."""
    runtime = selection.current().runtime
    if runtime is None or isinstance(runtime, DelegateRuntime):
        return False
    return profile() is not None


def by_name() -> str:
    """The plugin, for messages."""
    return str(selection.current().plugin)


def check() -> None:
    """Raises RuntimeError, with the next step, where nothing can be compiled for flagos here."""
    if settings.FLAGOS_USE_FLAGTREE.read():
        flagtree.require_flagtree()
    target = profile()
    if target and torch._inductor.config.cpp_wrapper:
        _check_wrapper(target)
    if is_triton_device():
        _check_triton()
    elif isinstance(selection.current().runtime, AbiRuntime):
        raise RuntimeError(
            f"The plugin {by_name()} names no Triton target, so torch.compile has no compiler for "
            'its device. Run the model without torch.compile, or with backend="aot_eager"; the '
            "plugin's hook torch_fl_triton_target is what it lacks."
        )


def _check_wrapper(target: TritonTarget) -> None:
    if is_triton_device() or not target.cpp_wrapper:
        raise RuntimeError(
            f"The plugin {by_name()} has no C++ wrapper for compiled graphs, which "
            "cpp_wrapper=True and AOTInductor need. Compile with torch.compile and without "
            "cpp_wrapper; to deploy, save the exported program and compile it where it runs."
        )


def _check_triton() -> None:
    target = profile()
    assert target is not None
    install = f" {target.install}" if target.install else " Its documentation says which."
    if importlib.util.find_spec("triton") is None:
        raise RuntimeError(
            f"torch.compile makes Triton kernels for the plugin {by_name()}, but there is no "
            f"package 'triton' in this environment. Install the one that has the backend "
            f"{target.key!r}.{install}"
        )
    from triton.backends import backends

    if target.key not in backends:
        raise RuntimeError(
            f"torch.compile makes Triton kernels for the plugin {by_name()}, but "
            f"{flagtree.found()} has no backend {target.key!r}: it has "
            f"{', '.join(sorted(backends)) or 'none'}. All builds of Triton install the same "
            "package 'triton', and the last one installed is the one there is: install the one "
            f"that has {target.key!r} again.{install}"
        )


class Properties:
    """A device's properties as the compiler wants them: what the plugin's target says goes before
    what the device says itself."""

    def __init__(self, own: Any, target: TritonTarget) -> None:
        self._own = own
        self._target = target

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._target.properties:
            return self._target.properties[name]
        value = getattr(self._own, name, None)
        if name == "warp_size":
            return self._target.warp_size or value or _DEFAULT_WARP_SIZE
        if name in ("major", "minor") and isinstance(self._target.arch, int):
            return self._target.arch // 10 if name == "major" else self._target.arch % 10
        if value is None:
            raise AttributeError(f"flagos' device properties have no {name!r}.")
        return value


def properties(own: Any) -> Properties:
    """`own`, as torch.flagos.get_device_properties has it, completed for the compiler."""
    target = profile()
    assert target is not None
    return Properties(own, target)


def arch(own: Any) -> int | str:
    """The architecture that kernels are compiled for, given the device's own properties."""
    target = profile()
    assert target is not None
    if target.arch is not None:
        return target.arch
    for name in ("arch", "gcnArchName"):
        if found := getattr(own, name, None) or getattr(own, "extra", {}).get(name):
            return str(found)
    major, minor = getattr(own, "major", None), getattr(own, "minor", None)
    if major is None:
        raise RuntimeError(
            f"The plugin {by_name()} says no architecture for Triton: neither its target's `arch` "
            "nor the device's properties (`arch`, `gcnArchName`, `major`) have one."
        )
    return int(major) * 10 + int(minor or 0)


def warp_size(own: Any) -> int:
    """The warp size in Triton's target, given the device's own properties."""
    target = profile()
    assert target is not None
    if target.warp_size is not None:
        return target.warp_size
    return int(getattr(own, "warp_size", None) or _DEFAULT_WARP_SIZE)
