"""Owns: the values in which a plugin describes what parts of the core use once it is chosen:
compiler, collectives, profiler. What a compile policy is given and may say is in `policies`.

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
    `arch`: capability (90) or architecture's name ("gfx936"); None when it is asked of the device's
    properties: `arch`, else `gcnArchName`, else ten times `major` plus `minor`.
    `warp_size`: threads that run in lockstep, as Triton's GPUTarget has it; None when it is asked
    of the device's properties, 32 where those have none.
    `cuda_like`: Inductor's CUDA templates, heuristics and fusions apply.
    `raw_stream`: reference of a function from device index to the raw stream's address; empty when
    the core's own will do.
    `compile_threads`: processes that compile at once, None for Inductor's choice; 1 where a
    compiler may not run in a forked or second process.
    `cudagraphs`, `cpp_wrapper`: whether Inductor may use them. Both need a device that PyTorch
    knows: a plugin that does not delegate leaves them False.
    `options`: options of `triton.compile`, forced on every kernel.
    `settings`: settings of `torch._inductor.config`, forced on every compilation; the key is the
    dotted name, as in {"coordinate_descent_tuning": False}.
    `guards`: references of functions `guard(kernel: Kernel) -> str | None` that refuse a kernel
    before it is compiled: what they return is shown to the user and says what to change.
    `properties`: hardware properties that the device's own lack or do not give as the compiler
    needs them, by the names that torch.cuda has, as in {"regs_per_multiprocessor": 65536}.
    `install`: how a user gets the Triton that has this target, a sentence for errors.
    """

    backend: str
    triton_backend: str = ""
    arch: int | str | None = None
    warp_size: int | None = None
    cuda_like: bool = False
    raw_stream: str = ""
    compile_threads: int | None = None
    cudagraphs: bool = False
    cpp_wrapper: bool = False
    options: Mapping[str, object] = field(default_factory=dict)
    guards: tuple[str, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)
    properties: Mapping[str, int] = field(default_factory=dict)
    install: str = ""

    @property
    def key(self) -> str:
        """Its key in `triton.backends`."""
        return self.triton_backend or self.backend

    def __post_init__(self) -> None:
        for name in ("backend", "triton_backend", "raw_stream", "install"):
            check_text(name, getattr(self, name))
        if not self.backend:
            raise ValueError("backend must be the device's name in Triton, but is empty.")
        arch = self.arch
        if (
            arch is not None
            and not (is_count(arch) and arch)
            and not (isinstance(arch, str) and arch)
        ):
            raise ValueError(
                f'arch must be a number such as 90, a name such as "gfx936", or None, not {arch!r}.'
            )
        if self.warp_size is not None and not is_count(self.warp_size):
            raise ValueError(f"warp_size must be a number or None, but is {self.warp_size!r}.")
        if self.compile_threads is not None and not (
            is_count(self.compile_threads) and self.compile_threads
        ):
            raise ValueError(
                f"compile_threads must be 1 or more, or None, but is {self.compile_threads!r}."
            )
        for name in ("cuda_like", "cudagraphs", "cpp_wrapper"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, but is {getattr(self, name)!r}.")
        for name in ("options", "settings", "properties"):
            _check_names(name, getattr(self, name))
        for name, value in self.properties.items():
            if not is_count(value):
                raise ValueError(f"properties must have numbers, but {name!r} is {value!r}.")
        if self.raw_stream:
            check_reference("raw_stream", self.raw_stream)
        if not isinstance(self.guards, tuple):
            raise TypeError(f"guards must be a tuple of references, but is {self.guards!r}.")
        for guard in self.guards:
            check_reference("a guard", guard)


@dataclass(frozen=True)
class CompilePolicy:
    """Something that the compiler backend must do differently for a device.

    `name`: for reports. `implementation`: reference of an object (a module will do) that has some
    of the hooks of torch_fl.plugins.policies.Policy.
    """

    name: str
    implementation: str

    def __post_init__(self) -> None:
        check_text("name", self.name)
        if not self.name:
            raise ValueError("name must be a word for reports, but is empty.")
        check_reference("implementation", self.implementation)


@dataclass(frozen=True)
class Communicator:
    """The collectives between devices.

    `name`: the backend's name in torch.distributed. `implementation`: reference of what makes it.
    """

    name: str
    implementation: str

    def __post_init__(self) -> None:
        check_reference("implementation", self.implementation)


@dataclass(frozen=True)
class Profiler:
    """What traces a device's activity.

    `name`: for reports. `implementation`: reference of what makes it.
    """

    name: str
    implementation: str

    def __post_init__(self) -> None:
        check_reference("implementation", self.implementation)


def check_reference(what: str, reference: object) -> None:
    """Raises ValueError unless `reference` looks like "package.module:attribute"."""
    if not isinstance(reference, str) or not _REFERENCE.fullmatch(reference):
        raise ValueError(
            f'{what} must be written "package.module:attribute", but is {reference!r}.'
        )


def check_text(what: str, value: object) -> None:
    """Raises TypeError unless `value` is text."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be text, but is {value!r}.")


def _check_names(what: str, mapping: object) -> None:
    if not isinstance(mapping, Mapping) or not all(isinstance(name, str) for name in mapping):
        raise TypeError(f"{what} must be a mapping from names, but is {mapping!r}.")
