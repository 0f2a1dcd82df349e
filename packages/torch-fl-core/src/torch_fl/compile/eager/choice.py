"""Owns: which operators must stay flagos' own in a region that is compiled for the target."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from torch_fl.compile.eager.names import NAMESPACE, OF_PYTORCH
from torch_fl.plugins import selection

PRIVATE_KEY = "PrivateUse1"

# One for each layout: some operators make or take nothing but sparse tensors.
_CPU_KEYS = ("CPU", "SparseCPU", "SparseCsrCPU", "QuantizedCPU", "NestedTensorCPU")

# Where users' operators have the kernels that flagos tensors take.
_KEYS = (PRIVATE_KEY, "CompositeExplicitAutograd")


def users_operators() -> set[str]:
    """All operators of users that would stay flagos' own."""
    return {
        name
        for key in _KEYS
        for name in torch._C._dispatch_get_registrations_for_dispatch_key(key)
        if name.partition("::")[0] not in (*OF_PYTORCH, NAMESPACE)
    }


def is_flagos_own(
    operator: torch._ops.OpOverload, given: Mapping[str, Any], elsewhere: Collection[str]
) -> bool:
    """Whether a call of an operator stays. `given`: its arguments in a graph by name, without those
    that are left to their defaults. `elsewhere`: operators that somebody has routed."""
    if operator.namespace == NAMESPACE:
        return False
    if operator.name() in elsewhere:
        return True
    if operator.namespace not in OF_PYTORCH:
        return any(
            torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), key) for key in _KEYS
        )
    on_host = selection.current().target in (None, "cpu")
    return on_host and (_draws(operator, given) or is_unknown_to_cpus(operator))


def is_unknown_to_cpus(operator: torch._ops.OpOverload) -> bool:
    """PyTorch's own for accelerators, such as fused cells of recurrent layers."""
    has_kernel = torch._C._dispatch_has_computed_kernel_for_dispatch_key
    name = operator.name()
    if operator.namespace != "aten" or not has_kernel(name, PRIVATE_KEY):
        return False
    return not any(has_kernel(name, key) for key in _CPU_KEYS)


def _draws(operator: torch._ops.OpOverload, given: Mapping[str, Any]) -> bool:
    """Whether random numbers are taken from a generator. Attention is in PyTorch's list for its
    dropout, which is zero wherever a CPU's own implementation runs."""
    if torch.Tag.nondeterministic_seeded not in operator.tags:
        return operator.name() in ("prims::inductor_seed", "prims::inductor_seeds")
    dropout = next((a for a in operator._schema.arguments if a.name == "dropout_p"), None)
    return dropout is None or given.get(dropout.name, dropout.default_value) != 0
