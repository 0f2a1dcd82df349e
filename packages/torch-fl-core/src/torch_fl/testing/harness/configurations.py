"""Owns: configurations: the settings of a process with which any suite can be run.

A configuration is variables for the worker processes and a device. Its name stands in the
results.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from torch_fl import settings

PLAIN: Final = "plain"

_lock = threading.Lock()


@dataclass(frozen=True)
class Configuration:
    """How worker processes are set up.

    ``variables`` are set for them; ``index`` is the device's; ``host_only`` is one that other
    backends do not have; ``devices`` is how many the backend must have.
    """

    name: str
    about: str
    variables: Mapping[str, str] = field(default_factory=dict)
    index: int | None = None
    host_only: bool = False
    devices: int = 1
    copies: bool = False
    """Operators run on copies: what lies where in memory is not compared, nor which results share
    memory. Values, shapes, dtypes, versions and what is written are."""

    def device(self, device: str) -> str:
        """The device under test, with this configuration's index."""
        return device if self.index is None or ":" in device else f"{device}:{self.index}"

    @contextmanager
    def in_force(self, more: Mapping[str, str]) -> Iterator[None]:
        """Set the variables, and ``more``, for the processes that are started inside.

        Some of PyTorch's databases go through sets of strings: two runs have the same samples only
        where strings hash alike.
        """
        variables = {"PYTHONHASHSEED": "0", **more, **self.variables}
        with _lock:
            before = {name: os.environ.get(name) for name in variables}
            os.environ.update(variables)
            try:
                yield
            finally:
                for name, value in before.items():
                    if value is None:
                        del os.environ[name]
                    else:
                        os.environ[name] = value


def _route(name: str, chain: str, what: str, copies: bool = False) -> Configuration:
    variables = {f"{settings.FLAGOS_OP.prefix}default": chain}
    return Configuration(name, what, variables, copies=copies)


CONFIGURATIONS: Final[dict[str, Configuration]] = {
    item.name: item
    for item in (
        Configuration(PLAIN, "one device, the backend's own routes"),
        Configuration(
            "second-device",
            "two devices, everything on the second one",
            {settings.FLAGOS_HOST_DEVICES.name: "2"},
            index=1,
            devices=2,
        ),
        Configuration(
            "guard",
            "device memory faults when it is touched outside of kernels",
            {settings.FLAGOS_HOST_GUARD.name: "1"},
            host_only=True,
        ),
        _route("route-boxing", "boxing", "every operator on the target's kernel"),
        _route("route-composite", "composite, boxing", "PyTorch's compositions where there are"),
        _route("route-cpu", "cpu, boxing", "the CPU fallback wherever it can run", copies=True),
    )
}
"""All configurations by name, the plain one first."""
