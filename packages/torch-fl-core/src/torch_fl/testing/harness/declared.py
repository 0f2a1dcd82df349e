"""Owns: the entries of the suites that need special treatment, as data, each with its reason.

An entry here is not an exclusion: the operator runs and is compared in all that is defined.
What holds for an operator holds for its reference in Python, so `plain` takes that prefix away.
"""

from __future__ import annotations

from typing import Final


def plain(name: str) -> str:
    """The name under which an entry is declared here."""
    return name.removeprefix("_refs.")


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

_RECURRENT: Final = (
    "PyTorch's composite asks is_cpu(): only there it multiplies the inputs of all steps at once, "
    "so that the gradients of weights are sums here and transposed views there"
)
_CELL: Final = (
    "PyTorch's composite asks whether the device is an accelerator: there a cell is one operator, "
    "so that the gradients of biases are sums here and views there, and LSTMCell's backward "
    "returns one tensor as the gradient of both biases"
)

PRIVATE_VIEWS: Final[dict[str, str]] = {
    "nn.functional.max_pool1d": (
        "PyTorch's composite asks is_cpu(): only there it has a kernel without indices; elsewhere "
        "it pools in two dimensions and squeezes, so the result is a view"
    ),
    "nn_RNN": _RECURRENT,
    "nn_GRU": _RECURRENT,
    "nn_LSTM": _RECURRENT,
    "nn_GRUCell": _CELL,
    "nn_LSTMCell": _CELL,
}
"""Results may be views of a tensor that nobody else has, where the CPU's are no views, or the other
way round, and may share it."""

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

UNDEFINED_ON_CPU: Final[dict[tuple[str, str, str], str]] = {
    ("SGD", "fused", "torch.bfloat16"): (
        "stock CPU's fused kernel reads the momentum that PyTorch leaves uninitialised before the "
        "first step, so that two runs on the CPU differ"
    ),
}
"""(entry, pass, dtype) where stock CPU's own values differ from run to run: nothing to compare."""

LAYOUTS_BY_DEVICE: Final[dict[str, str]] = {
    "nn_GroupNorm": (
        "autograd's formula asks is_cpu(): only there it keeps the memory format of an image's "
        "gradient, elsewhere it makes it contiguous"
    ),
}
"""Strides may differ: the CPU's are the CPU's alone, by the code above the operators."""
