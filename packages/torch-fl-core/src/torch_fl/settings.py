"""Owns: every FLAGOS_* variable: its name, meaning, default and values, and how it is read.

A leaf module of the standard library alone: `./dev docs` loads this file by its path and makes the
page of all variables from it. Whoever needs a variable reads it here, as in
`settings.FLAGOS_PLUGIN.read()`, so that none exists that the page does not have. An empty variable
counts as one that is not set.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

__all__ = ["SETTINGS", "Family", "Setting", "undeclared"]

Value = TypeVar("Value")

_PREFIX = "FLAGOS_"
_UNITS = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_UNITS |= {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True)
class Setting(Generic[Value]):
    """A variable of the environment.

    `values` and `default` are words for the page; `unset` is what `read` returns when the variable
    is not set. `parse` gets the variable's name and its text, which is never empty.
    """

    name: str
    meaning: str
    values: str
    default: str
    unset: Value
    parse: Callable[[str, str], Value] = field(repr=False)

    def text(self, environment: Mapping[str, str] | None = None) -> str:
        """What the variable says, without spaces around it; empty when it is not set."""
        return (os.environ if environment is None else environment).get(self.name, "").strip()

    def read(self, environment: Mapping[str, str] | None = None) -> Value:
        """The value. Raises ValueError that names the variable and what it may be."""
        text = self.text(environment)
        return self.parse(self.name, text) if text else self.unset


@dataclass(frozen=True)
class Family:
    """Variables that share a beginning, such as one for every operator."""

    prefix: str
    placeholder: str
    meaning: str
    values: str
    default: str

    @property
    def name(self) -> str:
        """The name for readers: FLAGOS_OP_<operator>."""
        return f"{self.prefix}<{self.placeholder}>"

    def read(self, environment: Mapping[str, str] | None = None) -> dict[str, str]:
        """What is set: the rest of each variable's name, and its text without spaces around it."""
        variables = os.environ if environment is None else environment
        found = {
            name[len(self.prefix) :]: text.strip()
            for name, text in sorted(variables.items())
            if name.startswith(self.prefix)
        }
        return {rest: text for rest, text in found.items() if text}


def _text(name: str, text: str) -> str:
    return text


def _path(name: str, text: str) -> Path:
    return Path(text)


def _names(name: str, text: str) -> tuple[str, ...]:
    return tuple(word for word in re.split(r"[,\s]+", text) if word)


def _flag(name: str, text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError(f"{name} must be 0 or 1, but is {text!r}.")
    return text == "1"


def _count(largest: int) -> Callable[[str, str], int]:
    def parse(name: str, text: str) -> int:
        if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= largest:
            raise ValueError(f"{name} must be a number from 1 to {largest}, but is {text!r}.")
        return int(text)

    return parse


def _migrate(name: str, text: str) -> str:
    if text not in ("0", "1", "force"):
        raise ValueError(f"{name} must be 0, 1 or force, but is {text!r}.")
    return "" if text == "0" else text


def _size(name: str, text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text, re.ASCII)
    unit = _UNITS.get(match.group(2).upper()) if match else None
    if match is None or unit is None or (size := int(float(match.group(1)) * unit)) <= 0:
        raise ValueError(
            f"{name} must be a size in bytes or with a unit, such as 512MiB or 2GiB, but is "
            f"{text!r}."
        )
    return size


def _switch(name: str, meaning: str) -> Setting[bool]:
    return Setting(name, meaning, "`0` or `1`", "`0`", False, _flag)


FLAGOS_AUTOLOAD: Setting[bool | None] = Setting(
    "FLAGOS_AUTOLOAD",
    "Whether `import torch` activates flagos by itself. Read before torch_fl is imported; anything "
    "but `0` and `1` counts as not set.",
    "`0`: never; `1`: always",
    "only where this torch has no other accelerator",
    None,
    _flag,
)
FLAGOS_PLUGIN = Setting(
    "FLAGOS_PLUGIN",
    "The backend to use. When it cannot be used, the first use of the device raises the reason.",
    "a plugin's name, such as `host`",
    "the one that fits the hardware, else `host`",
    "",
    _text,
)
FLAGOS_PLUGINS_ALLOW: Setting[tuple[str, ...] | None] = Setting(
    "FLAGOS_PLUGINS_ALLOW",
    "The only plugins that may be imported.",
    "names, separated by commas",
    "all that are installed",
    None,
    _names,
)
FLAGOS_DISABLE_PLUGINS: Setting[tuple[str, ...]] = Setting(
    "FLAGOS_DISABLE_PLUGINS",
    "Plugins that are not imported.",
    "names, separated by commas",
    "none",
    (),
    _names,
)
FLAGOS_DEVICE_ROOT = Setting(
    "FLAGOS_DEVICE_ROOT",
    "The folder in which plugins look for `sys` and `dev` when they detect hardware. For tests and "
    "containers.",
    "a folder",
    "`/`",
    Path("/"),
    _path,
)
FLAGOS_HOST_DEVICES = Setting(
    "FLAGOS_HOST_DEVICES",
    "The number of devices of the host backend.",
    "1 to 64",
    "1",
    1,
    _count(64),
)
FLAGOS_HOST_MEMORY = Setting(
    "FLAGOS_HOST_MEMORY",
    "The memory of each device of the host backend.",
    "bytes, or a size with a unit such as `512MiB` or `2GiB`",
    "all that the machine has",
    0,
    _size,
)
FLAGOS_HOST_GUARD = _switch(
    "FLAGOS_HOST_GUARD",
    "Device memory of the host backend faults when it is touched outside of kernels and copies: a "
    "debugging aid, slow.",
)
FLAGOS_BACKEND_CONFIG = Setting(
    "FLAGOS_BACKEND_CONFIG",
    "Which routes operators take, over the plugin's own.",
    "a routes file, or the name of one of the plugin's profiles",
    "the plugin's routes",
    "",
    _text,
)
FLAGOS_OP = Family(
    "FLAGOS_OP_",
    "operator",
    "The route of one operator, over FLAGOS_BACKEND_CONFIG. `.` in its name is written `__`: "
    "`FLAGOS_OP_add__Tensor`.",
    "a chain of routes, such as `flaggems, cpu`",
    "what the configuration says",
)
FLAGOS_LOG_DISPATCH = _switch(
    "FLAGOS_LOG_DISPATCH",
    "Prints each operator and its route on standard error: `[flagos dispatch] <op> -> <route>`.",
)
FLAGOS_LOG_FALLBACK = _switch(
    "FLAGOS_LOG_FALLBACK",
    "Prints each operator that runs on the CPU fallback on standard error: "
    "`[flagos cpu_fallback] <op>`.",
)
FLAGOS_BREADCRUMBS = _switch(
    "FLAGOS_BREADCRUMBS",
    "Errors that the device reports later than they were made name the operators called last.",
)
FLAGOS_STRICT = _switch("FLAGOS_STRICT", "The CPU fallback is an error that names the operator.")
FLAGOS_USE_FLAGTREE = _switch(
    "FLAGOS_USE_FLAGTREE",
    "Compiling for flagos is an error unless the active Triton is FlagTree's. It asserts, and "
    "never switches: all builds of Triton install the same package.",
)
FLAGOS_COMPILE_FALLBACK_EAGER = _switch(
    "FLAGOS_COMPILE_FALLBACK_EAGER",
    "A graph that torch.compile cannot compile for flagos runs eagerly, and the reason is logged.",
)
FLAGOS_MIGRATE = Setting(
    "FLAGOS_MIGRATE",
    'The process begins with `torch_fl.migrate()`: "cuda" in its scripts means flagos. Read when '
    "torch_fl is imported.",
    "`0` or `1`; `force`: also where CUDA devices are",
    "`0`",
    "",
    _migrate,
)

SETTINGS: tuple[Setting[object] | Family, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Setting | Family)
)
"""All of them, in the order of the page."""


def undeclared(names: Iterable[str] | None = None) -> dict[str, str | None]:
    """FLAGOS_* variables that nobody reads, by default those of this process, each with the nearest
    name that exists: a misspelt variable has no effect and says nothing."""
    known = [setting.name for setting in SETTINGS]
    prefixes = tuple(setting.prefix for setting in SETTINGS if isinstance(setting, Family))
    strange = [
        name
        for name in sorted(os.environ if names is None else names)
        if name.startswith(_PREFIX) and name not in known and not name.startswith(prefixes)
    ]
    return {name: _nearest(name, known) for name in strange}


def _nearest(name: str, known: Iterable[str]) -> str | None:
    words = [other.removeprefix(_PREFIX) for other in known]  # else all of them look alike
    found = difflib.get_close_matches(name.removeprefix(_PREFIX), words, 1)
    return _PREFIX + found[0] if found else None
