"""Owns: the embedded backend, on the CPU memory of any machine, and its settings."""

from __future__ import annotations

import os
import re

from torch_fl.plugins.spec import HostRuntime, Plugin

_UNITS = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_UNITS |= {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def runtime() -> HostRuntime:
    """The host runtime as the environment wants it.

    FLAGOS_HOST_DEVICES: number of devices, 1 to 64, default 1. FLAGOS_HOST_MEMORY: memory of each,
    such as 512MiB or 2GiB, default all. FLAGOS_HOST_GUARD: 1 to protect device memory.
    """
    return HostRuntime(
        devices=_count("FLAGOS_HOST_DEVICES", default=1, largest=64),
        memory_limit=_size("FLAGOS_HOST_MEMORY"),
        guard=_flag("FLAGOS_HOST_GUARD"),
    )


def _count(variable: str, default: int, largest: int) -> int:
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= largest:
        raise ValueError(f"{variable} must be a number from 1 to {largest}, but is {text!r}.")
    return int(text)


def _size(variable: str) -> int:
    text = os.environ.get(variable, "").strip()
    if not text:
        return 0
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text, re.ASCII)
    unit = _UNITS.get(match.group(2).upper()) if match else None
    if match is None or unit is None or (size := int(float(match.group(1)) * unit)) <= 0:
        raise ValueError(
            f"{variable} must be a size in bytes or with a unit, such as 512MiB or 2GiB, but is "
            f"{text!r}."
        )
    return size


def _flag(variable: str) -> bool:
    text = os.environ.get(variable, "").strip()
    if text not in ("", "0", "1"):
        raise ValueError(f"{variable} must be 0 or 1, but is {text!r}.")
    return text == "1"


plugin = Plugin(name="host", runtime=runtime)
