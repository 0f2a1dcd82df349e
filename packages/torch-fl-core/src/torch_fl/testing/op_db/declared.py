"""Owns: the operators of ``op_db`` that need special treatment, as data, each with its reason.

An entry here is not an exclusion: the operator runs and is compared in all that is defined.
No other module of this package names an operator.
"""

from __future__ import annotations

from typing import Final

_UNINITIALISED: Final = "returns uninitialised memory: only its metadata is defined"

UNINITIALISED_RESULTS: Final[dict[str, str]] = {
    "empty": _UNINITIALISED,
    "empty_like": _UNINITIALISED,
    "empty_permuted": _UNINITIALISED,
    "empty_strided": _UNINITIALISED,
    "new_empty": _UNINITIALISED,
    "new_empty_strided": _UNINITIALISED,
}
"""Values are not compared; dtype, shape, strides, device, aliasing and versions are."""

CPU_ARGUMENTS: Final[dict[tuple[str, str], str]] = {
    ("tensor_split", "1"): (
        "PyTorch's composite reads the split points on the host and requires a CPU tensor, "
        "whatever the device of the tensor that is split"
    ),
}
"""(operator, argument path as ``tree.walk`` spells it): the argument that stays on the CPU."""

PRIVATE_VIEWS: Final[dict[str, str]] = {
    "nn.functional.max_pool1d": (
        "PyTorch's composite asks is_cpu(): only there it has a kernel without indices; elsewhere "
        "it pools in two dimensions and squeezes, so the result is a view"
    ),
}
"""Results may be views of a tensor that nobody else has, where the CPU's are no views."""

CPU_RESULTS: Final[dict[str, str]] = {}
"""Operators whose result is a CPU tensor by design, whatever the device of their arguments."""

_FACTORY: Final = "some samples name no device; without one the result is a CPU tensor by design"

NEEDS_DEVICE_ARGUMENT: Final[dict[str, str]] = {
    "arange": _FACTORY,
    "linspace": _FACTORY,
    "linspace.tensor_overload": _FACTORY,
    "logspace": _FACTORY,
    "logspace.tensor_overload": _FACTORY,
}
"""Factories: a sample without ``device=`` is given one, on both sides."""
