"""Owns: the values in which a plugin describes what parts of the core use once it is chosen:
compiler, collectives, profiler.

Plugins import them from `torch_fl.plugins.spec`. What needs torch or an SDK is named by a
*reference*, "package.module:attribute", and imported only when it is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch_fl.plugins.declarations import is_count

_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class TritonTarget:
    """How Triton kernels are compiled for a device: what differs between makers.

    `backend`: the device's name in Triton's GPUTarget, such as "cuda" or "hip".
    `triton_backend`: its key in `triton.backends`; empty when it is the same as `backend`.
    `arch`: capability or architecture name; None when it is asked of the device's properties.
    `warp_size`: threads that run in lockstep.
    `cuda_like`: Inductor's CUDA templates, heuristics and fusions apply.
    `raw_stream`: reference of a function from device index to the raw stream's address; empty when
    the core's own will do.
    `compile_threads`: processes that compile at once, None for Inductor's choice.
    `cudagraphs`, `cpp_wrapper`: whether Inductor may use them.
    `options`: forced on every compilation.
    `guards`: references of functions that refuse a kernel, with a diagnosis, before it is compiled.
    """

    backend: str
    triton_backend: str = ""
    arch: int | str | None = None
    warp_size: int = 32
    cuda_like: bool = False
    raw_stream: str = ""
    compile_threads: int | None = None
    cudagraphs: bool = False
    cpp_wrapper: bool = False
    options: Mapping[str, object] = field(default_factory=dict)
    guards: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.backend:
            raise ValueError("backend must be the device's name in Triton, but is empty.")
        if not is_count(self.warp_size) or self.warp_size == 0:
            raise ValueError(f"warp_size must be a number above 0, but is {self.warp_size!r}.")
        if self.raw_stream:
            _check_reference("raw_stream", self.raw_stream)
        for guard in self.guards:
            _check_reference("a guard", guard)


@dataclass(frozen=True)
class CompilePolicy:
    """Something that the compiler backend must do differently for a device.

    `name`: for reports. `implementation`: reference of what does it. The core's compiler backend
    defines when it is called and with what; a core that has none does not call it.
    """

    name: str
    implementation: str

    def __post_init__(self) -> None:
        _check_reference("implementation", self.implementation)


@dataclass(frozen=True)
class Communicator:
    """The collectives between devices.

    `name`: the backend's name in torch.distributed. `implementation`: reference of what makes it.
    """

    name: str
    implementation: str

    def __post_init__(self) -> None:
        _check_reference("implementation", self.implementation)


@dataclass(frozen=True)
class Profiler:
    """What traces a device's activity.

    `name`: for reports. `implementation`: reference of what makes it.
    """

    name: str
    implementation: str

    def __post_init__(self) -> None:
        _check_reference("implementation", self.implementation)


def _check_reference(what: str, reference: object) -> None:
    """Raises ValueError unless `reference` looks like "package.module:attribute"."""
    if not isinstance(reference, str) or not _REFERENCE.fullmatch(reference):
        raise ValueError(
            f'{what} must be written "package.module:attribute", but is {reference!r}.'
        )
