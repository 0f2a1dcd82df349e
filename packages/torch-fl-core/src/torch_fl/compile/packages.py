"""Owns: AOTInductor's packages of flagos programs (.pt2): what they say, and how they are called.

The code in a package is the target's, as in any compiled region, and so a process without torch_fl
can load it: there it is a program for the target's tensors. The package's metadata says what flagos
needs. Where torch_fl is active, such a package takes flagos tensors and gives flagos tensors.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from torch_fl import _C
from torch_fl._compat.compiler import packages as compat
from torch_fl.compile import eager
from torch_fl.compile.renaming import FLAGOS, is_flagos
from torch_fl.plugins import selection

KEY = "torch_fl"
"""The entry of a package's metadata."""


def described(
    mark: Mapping[str, Any] | None, given: Sequence[int]
) -> AbstractContextManager[object]:
    """Within it, packages that are compiled say that they are flagos'. `given`: for each tensor
    that they take the index of its flagos device, -1 for none of flagos'."""
    if mark is None:
        return contextlib.nullcontext()
    said = {**mark, "given": list(given), "target": _target()}
    return compat.described({KEY: json.dumps(said)})


def prepare(metadata: Mapping[str, str], device_index: int) -> int:
    """Before a package is loaded: makes the operators that it calls. Returns the index of the
    target's device to load it on."""
    said = _said(metadata)
    if said is None:
        return device_index
    if said["target"] != _target():
        raise RuntimeError(
            f"This package was compiled for flagos on {said['target']!r}, but flagos stands on "
            f"{_target()!r} in this process. Compile it again here: "
            "torch._inductor.aoti_compile_and_package(exported_program)."
        )
    eager.define(said["eager"])
    return -1 if _target() == "cpu" else device_index  # the host's devices are one to its code


def bounded(
    run: Callable[[list[Any]], Any], metadata: Mapping[str, str], device_index: int
) -> Callable[[list[Any]], Any]:
    """`run`, which takes and gives the target's tensors, for those that the package is for."""
    said = _said(metadata)
    if said is None:
        return _checked(run, metadata.get("AOTI_DEVICE_KEY", "another device"))
    moved = [device_index if device >= 0 <= device_index else device for device in said["devices"]]
    region = _C.CompiledRegion(run, moved, [])
    given = said["given"]

    def call(inputs: list[Any]) -> Any:
        for position, (value, device) in enumerate(zip(inputs, given, strict=False)):
            if isinstance(value, torch.Tensor) and is_flagos(value) != (device >= 0):
                wanted = FLAGOS if device >= 0 else "not flagos"
                raise RuntimeError(
                    f"Tensor {position} of this package's inputs is on {str(value.device)!r}, but "
                    f"was {wanted} when the program was exported. Move it there first."
                )
        return region(inputs)

    return call


def _checked(run: Callable[[list[Any]], Any], device: str) -> Callable[[list[Any]], Any]:
    """A package that is not of flagos reads memory by addresses: it must not get flagos'."""

    def call(inputs: list[Any]) -> Any:
        if any(map(is_flagos, inputs)):
            raise RuntimeError(
                f"This package was compiled for {device!r} and cannot take flagos tensors. Export "
                "the program on flagos (or move it: torch.export.passes.move_to_device_pass("
                "program, 'flagos')) and compile it again."
            )
        return run(inputs)

    return call


def to_target(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Constants that are given to a package, for its code."""
    return {
        name: _C.to_target(value) if is_flagos(value) else value for name, value in tensors.items()
    }


def _said(metadata: Mapping[str, str]) -> dict[str, Any] | None:
    text = metadata.get(KEY)
    return json.loads(text) if text else None


def _target() -> str:
    return selection.current().target or "cpu"
