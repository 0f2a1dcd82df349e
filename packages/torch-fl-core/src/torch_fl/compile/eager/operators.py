"""Owns: the operators of ours that a process has: each is registered when it is first named."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from torch_fl._compat.compiler import inductor
from torch_fl.compile import random_states
from torch_fl.compile.eager import kernels, schemas
from torch_fl.compile.eager.names import NAMESPACE, Call

_library: torch.library.Library | None = None
_defined: set[str] = set()


def define(names: Iterable[str]) -> None:
    """Makes the operators of ours for names that `keep` returned.

    Raises RuntimeError where this process lacks an operator that one of them calls.
    """
    for name in names:
        if name not in _defined:
            _define(Call.of(name))
            _defined.add(name)


def overload(call: Call) -> torch._ops.OpOverload:
    """An operator of ours that is defined."""
    found: torch._ops.OpOverload = getattr(getattr(torch.ops, NAMESPACE), call.identifier()).default
    return found


def _define(call: Call) -> None:
    global _library
    if _library is None:
        _library = torch.library.Library(NAMESPACE, "DEF")
    operator = _find(call.operator)
    name, form, index = call.identifier(), call.form, call.index
    arguments = random_states.signature(schemas.signature(operator, call.numbers), form)
    kernel = random_states.around(kernels.real(operator, call), form, index)
    fake = random_states.fake_around(kernels.fake(operator, call), form, index)
    _library.define(name + arguments, tags=[*operator.tags])
    _library.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_library)


def _find(qualified: str) -> torch._ops.OpOverload:
    namespace, _, rest = qualified.partition("::")
    base, _, overload_name = rest.partition(".")
    if namespace == "prims":
        inductor.load_operators()
    packet = getattr(getattr(torch.ops, namespace), base, None)
    if packet is None:
        raise RuntimeError(
            f"Compiled code calls the operator {qualified!r}, which this process does not have. "
            "Import what registers it before the code is loaded."
        )
    found: torch._ops.OpOverload = getattr(packet, overload_name or "default")
    return found
