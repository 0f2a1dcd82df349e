"""Owns: the values in which a plugin says who it is, what it found and what it stands on.

Plugins import them from `torch_fl.plugins.spec`. Each checks itself when it is made, so a mistake
is found in the plugin's own tests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

RESERVED_NAMES = frozenset(
    # Routes and words of routes files: a plugin's name is a route's alias there.
    {"boxing", "native", "flaggems", "composite", "cpu", "core", "default", "include", "flagos"}
)
HOST = "host"  # the embedded plugin
LARGEST_PRIORITY = 1000
MOST_HOST_DEVICES = 64

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Identity:
    """Who a plugin is.

    `name`: as in its entry point; users write it into FLAGOS_PLUGIN and into routes files.
    `api_version`: the oldest plugin API that it can work with, (major, minor).
    `title`: for people, such as "Example accelerators".
    `supersedes`: names of plugins that it replaces wherever both fit the machine.
    `priority`: decides last among plugins that fit; -1000 to 1000.
    """

    name: str
    api_version: tuple[int, int]
    title: str = ""
    supersedes: tuple[str, ...] = ()
    priority: int = 0

    def __post_init__(self) -> None:
        check_name(self.name)
        version = self.api_version
        if not (isinstance(version, tuple) and len(version) == 2 and all(map(is_count, version))):
            raise ValueError(f"api_version must be two numbers such as (1, 0), but is {version!r}.")
        if not isinstance(self.title, str):
            raise TypeError(f"title must be text, but is {self.title!r}.")
        if not isinstance(self.supersedes, tuple):
            raise TypeError(
                f"supersedes must be a tuple of plugins' names, but is {self.supersedes!r}."
            )
        for other in self.supersedes:
            if not isinstance(other, str) or not _NAME.fullmatch(other):
                raise ValueError(f"supersedes must have plugins' names, but has {other!r}.")
        if self.name in self.supersedes:
            raise ValueError(f"{self.name!r} cannot supersede itself: take it out of supersedes.")
        if not _is_integer(self.priority) or abs(self.priority) > LARGEST_PRIORITY:
            raise ValueError(
                f"priority must be a number from -{LARGEST_PRIORITY} to {LARGEST_PRIORITY}, but is "
                f"{self.priority!r}."
            )


@dataclass(frozen=True)
class Detection:
    """What a plugin found on the machine.

    `found`: its hardware is here and can be opened. `exact`: an id that belongs to this maker alone
    says so, such as a PCI vendor id; a library that answers, or a device node whose name others use
    too, is not exact. `devices`: how many, None if unknown. `reason`: one sentence for people,
    above all why nothing was found.
    """

    found: bool
    exact: bool = False
    devices: int | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.found, bool) or not isinstance(self.exact, bool):
            raise TypeError("found and exact must be True or False.")
        if self.exact and not self.found:
            raise ValueError("exact without found: nothing can match exactly where nothing is.")
        if self.devices is not None and not is_count(self.devices):
            raise ValueError(f"devices must be a number or None, but is {self.devices!r}.")
        if not isinstance(self.reason, str):
            raise TypeError(f"reason must be text, but is {self.reason!r}.")


@dataclass(frozen=True)
class HostRuntime:
    """Devices, streams and memory made by the core on CPU memory.

    `devices`: how many, 1 to 64. `memory_limit`: bytes for each device, 0 for all that the machine
    has. `guard`: device memory faults when touched outside kernels and copies, a debugging aid.
    """

    devices: int = 1
    memory_limit: int = 0
    guard: bool = False

    def __post_init__(self) -> None:
        if not is_count(self.devices) or not 1 <= self.devices <= MOST_HOST_DEVICES:
            raise ValueError(
                f"devices must be a number from 1 to {MOST_HOST_DEVICES}, but is {self.devices!r}."
            )
        if not is_count(self.memory_limit):
            raise ValueError(f"memory_limit must be bytes, but is {self.memory_limit!r}.")
        if not isinstance(self.guard, bool):
            raise TypeError(f"guard must be True or False, but is {self.guard!r}.")


@dataclass(frozen=True)
class DelegateRuntime:
    """Devices, streams and memory of a device that this PyTorch already has, such as "cuda".

    `foreach_takes_any_device`: the device's kernels of `torch._foreach_*` (of numbers and lists,
    but for norms) use the addresses, shapes and dtypes of their tensors and ask nothing of their
    device's type. They are given flagos' tensors as they are then, which makes optimizers faster by
    what thousands of aliases cost.
    """

    device_type: str
    foreach_takes_any_device: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.foreach_takes_any_device, bool):
            raise TypeError(
                f"foreach_takes_any_device must be True or False, but is "
                f"{self.foreach_takes_any_device!r}."
            )
        if not isinstance(self.device_type, str) or not self.device_type:
            raise ValueError(
                f'device_type must be a device of PyTorch such as "cuda", but is '
                f"{self.device_type!r}."
            )


@dataclass(frozen=True)
class AbiRuntime:
    """Devices, streams and memory behind a library with the C tables of flagos/runtime.h.

    `library`: its absolute path, as a rule inside the plugin's own package. The core loads it, and
    only if the plugin is chosen.
    """

    library: str

    def __post_init__(self) -> None:
        if not isinstance(self.library, str) or not Path(self.library).is_absolute():
            raise ValueError(
                f"library must be an absolute path, such as one beside the plugin's own __file__, "
                f"but is {self.library!r}."
            )


Runtime: TypeAlias = HostRuntime | DelegateRuntime | AbiRuntime


@dataclass(frozen=True)
class Routes:
    """Routes files that a plugin brings.

    `defaults`: the routes in force when nothing else is said, None for the core's own.
    `profiles`: further files by the name under which FLAGOS_BACKEND_CONFIG chooses them.
    """

    defaults: Path | None = None
    profiles: Mapping[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.defaults is not None and not isinstance(self.defaults, Path):
            raise TypeError(f"defaults must be a Path or None, but is {self.defaults!r}.")
        for name, path in self.profiles.items():
            if not isinstance(name, str) or not name or "/" in name:
                raise ValueError(f"A profile's name must be a word without '/', but is {name!r}.")
            if not isinstance(path, Path):
                raise TypeError(f"The profile {name!r} must be a Path, but is {path!r}.")


def check_name(name: object) -> None:
    """Raises ValueError unless `name` may be a plugin's name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"A plugin's name must be lower-case letters, digits and underscores, beginning with a "
            f"letter, but is {name!r}."
        )
    if name in RESERVED_NAMES:
        raise ValueError(f"{name!r} is a word of routes files: a plugin needs another name.")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
