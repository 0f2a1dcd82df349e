"""Owns: the suite of the operators over lists of tensors, the ``foreach_*_op_db`` databases.

Lists that the fast path takes, lists that it does not, and lists that must be refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import torch

from ..harness import tree
from ..harness.cases import ALL, Case, Cases, Pass, Suite
from ..harness.movers import Arguments
from .gradients import WithGradients
from .samples import seeded

# "cpu:0" and not "cpu": for that name PyTorch leaves out lists with empty tensors in between.
_DEVICE: Final = torch.device("cpu", 0)


def _load() -> Mapping[str, Any]:
    from torch.testing._internal import common_methods_invocations as databases

    return {
        op.full_name: op
        for name in ("unary", "binary", "pointwise", "reduce", "other")
        for op in getattr(databases, f"foreach_{name}_op_db")
    }


def _samples(op: Any, dtype: torch.dtype, **how: Any) -> Iterator[tuple[int, Any]]:
    how = {"requires_grad": False, "allow_higher_dtype_scalars": True, **how}
    return seeded(lambda: op.sample_inputs_func(op, _DEVICE, dtype, **how))


def _arguments(op: Any, sample: Any) -> Arguments:
    return Arguments.of_sample(op.full_name, sample)


def _forward(**how: Any) -> Cases:
    def cases(op: Any, dtype: torch.dtype) -> Iterator[Case]:
        for index, sample in _samples(op, dtype, **how):
            yield Case(f"{dtype} sample {index}", op.op, _arguments(op, sample))

    return cases


def _inplace(op: Any, dtype: torch.dtype) -> Iterator[Case]:
    if op.inplace_variant is None:
        return
    for index, sample in _samples(op, dtype):
        yield Case(f"{dtype} sample {index}", op.inplace_variant, _arguments(op, sample))


def _grad(op: Any, dtype: torch.dtype) -> Iterator[Case]:
    if not op.supports_autograd:
        return
    for index, sample in _samples(op, dtype, requires_grad=True, num_input_tensors=[3]):
        yield Case(f"{dtype} sample {index}", WithGradients(op.op), _arguments(op, sample))


def _zero_size(op: Any, dtype: torch.dtype) -> Iterator[Case]:
    def without_elements(path: str, leaf: Any) -> Any:
        return leaf[:0].clone() if isinstance(leaf, torch.Tensor) and leaf.dim() else leaf

    for index, sample in _samples(op, dtype, num_input_tensors=[5]):
        given = _arguments(op, sample)
        arguments = Arguments(tree.transform(given.positional, without_elements), given.keyword)
        for name, function in _variants(op):
            yield Case(f"{dtype} sample {index}{name}", function, arguments)


def _variants(op: Any) -> list[tuple[str, Callable[..., Any]]]:
    return [("", op.op), *([(" in place", op.inplace_variant)] if op.inplace_variant else [])]


def _mixed(op: Any, dtype: torch.dtype) -> Iterator[Case]:
    """Lists of several dtypes, of several strides, and with one tensor twice: the slow path."""
    for index, sample in _samples(op, dtype, num_input_tensors=[5]):
        if len(sample.input) < 2:
            continue
        first, *rest = sample.input
        given = _arguments(op, sample)
        lists = {
            "two dtypes": [first.to(torch.float64), *rest],
            "two strides": [first.mT if first.dim() >= 2 else first, *rest],
            "one tensor twice": [rest[0], *rest],
        }
        for kind, tensors in lists.items():
            arguments = Arguments((tensors, *given.positional[1:]), given.keyword)
            for name, function in _variants(op):
                label = f"{dtype} sample {index} {kind}{name}"
                yield Case(label, function, arguments, "alerts")


_SPOILED: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "is empty": lambda items: [],
    "is too short": lambda items: items[:-1],
    "is too long": lambda items: [*items, items[-1]],
    "has another shape in it": lambda items: [
        torch.ones(7, 3, 2) if isinstance(items[0], torch.Tensor) else "text",
        *items[1:],
    ],
    "has None in it": lambda items: [None, *items[1:]],
    "is no list": lambda items: items[0],
}


def _refused(op: Any, dtype: torch.dtype) -> Iterator[Case]:
    """Each list of each sample, spoiled. What is refused by the CPU is refused with its words."""
    for index, sample in _samples(op, dtype, num_input_tensors=[4]):
        given = _arguments(op, sample)
        for position, argument in enumerate(given.positional):
            if not isinstance(argument, list):
                continue
            for kind, spoil in _SPOILED.items():
                changed = list(given.positional)
                changed[position] = spoil(argument)
                arguments = Arguments(tuple(changed), given.keyword)
                for name, function in _variants(op):
                    label = f"{dtype} sample {index}: list {position} {kind}{name}"
                    yield Case(label, function, arguments, "alerts")


_FLOAT32: Final = (torch.float32,)
_REST: Final = (torch.bfloat16, torch.float16, torch.int32, torch.complex128, torch.uint8)

# CUDA's kernels count versions on their fast path alone; flagos counts as the CPU does.
_Pass: Final = functools.partial(Pass, native_versions=False)

SUITE: Final = Suite(
    name="foreach_op_db",
    about="operators over lists of tensors",
    passes=(
        _Pass(
            "forward", ALL, _forward(), "lists of 20 and 23 tensors", ci=4, glance=1, selfcheck=3
        ),
        _Pass("dtypes", _REST, _forward(num_input_tensors=[5]), "other dtypes", ci=6),
        _Pass("inplace", ALL, _inplace, "the in-place variant", ci=4, glance=1),
        _Pass("grad", (torch.float32, torch.complex64), _grad, "gradients", glance=2),
        _Pass(
            "noncontiguous",
            (torch.float32, torch.int64),
            _forward(noncontiguous=True),
            "tensors with gaps between their elements",
            ci=3,
        ),
        _Pass("zero_size", _FLOAT32, _zero_size, "tensors without elements"),
        _Pass("mixed", _FLOAT32, _mixed, "lists that the fast path does not take", ci=20),
        _Pass("refused", _FLOAT32, _refused, "lists that do not fit", ci=40),
    ),
    load=_load,
    wrong=(
        "_foreach_add.List",
        "_foreach_add.Scalar",
        "_foreach_mul.List",
        "_foreach_mul.Scalar",
        "_foreach_exp",
        "_foreach_norm.Scalar",
    ),
    wrong_entries=4,
)
