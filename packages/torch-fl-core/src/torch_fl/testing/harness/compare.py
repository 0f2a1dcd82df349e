"""Owns: what it means that two outcomes of a call, the CPU's and the device's, are equal.

Equal are structure, device, dtype, layout, shape, strides, offset, conj and neg
bits, ``requires_grad``, aliasing, version counters, and values. Values must be equal bit for
bit (NaN equals NaN); values that are only within PyTorch's default tolerance for their dtype
are accepted and reported as inexact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from . import tree
from .call import Outcome, storage_of
from .telling import Raised


class Mismatch(AssertionError):
    """A difference; ``kind`` names what differs, the message says where and how."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


@dataclass(frozen=True)
class Expectation:
    """What the device's side must be besides equal.

    ``device`` is where each result tensor must lie; ``values`` is False where the operator's
    values are not defined; with ``private_views`` it does not matter whether a result is a view
    of something that is no input, nor how results hang together among themselves, and with
    ``any_strides`` not how a result lies in its memory.
    """

    device: torch.device
    values: bool = True
    private_views: bool = False
    any_strides: bool = False
    copies: bool = False
    """nothing is compared of where results lie, which share memory, and what of their values is
    only noted (a conjugation, zeros); nor of what a failed call left in its arguments"""
    native_versions: bool = True
    """version counters are in fingerprints, by which two devices are compared"""

    @property
    def ignored(self) -> frozenset[str]:
        """The kinds of metadata that are not compared."""
        if self.copies:
            return frozenset({"stride", "offset", "conj", "neg", "zero"})
        return frozenset({"stride"} if self.any_strides else ())


class _Metadata(NamedTuple):
    """What a tensor says about itself; the field names are the kinds of mismatch."""

    dtype: torch.dtype
    layout: torch.layout
    shape: tuple[int, ...]
    stride: tuple[int, ...] | None
    offset: int | None
    conj: bool
    neg: bool
    requires_grad: bool
    zero: bool
    """a tensor of zeros without memory, which some gradients are"""
    coalesced: bool | None

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Metadata:
        strided = tensor.layout == torch.strided
        return cls(
            dtype=tensor.dtype,
            layout=tensor.layout,
            shape=tuple(tensor.shape),
            stride=tensor.stride() if strided else None,
            offset=int(tensor.storage_offset()) if strided else None,
            conj=tensor.is_conj(),
            neg=tensor.is_neg(),
            requires_grad=tensor.requires_grad,
            zero=tensor._is_zerotensor(),
            coalesced=tensor.is_coalesced() if tensor.layout == torch.sparse_coo else None,
        )


class _Alias(NamedTuple):
    """How one tensor hangs together with others; tensors are named by their position."""

    is_object: int | None
    """the first of the known tensors that is this very object"""
    shares_storage: tuple[int, ...]
    """the known tensors with the same StorageImpl"""
    shares_memory: tuple[int, ...]
    """the known tensors whose (non-empty) storage starts at the same address"""
    is_view: bool
    base: int | None
    """the first of the known tensors that is ``_base``; -1: a base that is none of them"""

    def without_private_base(self) -> _Alias:
        """The same, no view if it is one of a tensor that is not known."""
        return self._replace(is_view=False, base=None) if self.base == -1 else self


def compare(expected: Outcome, actual: Outcome, expectation: Expectation) -> float:
    """Raise `Mismatch` at the first difference; return the largest tolerated one (0.0: exact)."""
    _compare_structure(expected, actual)
    wanted = tree.tensors(expected.result)
    given = tree.tensors(actual.result)
    for index, (want, got) in enumerate(zip(wanted, given, strict=True)):
        _compare_device(want, got, expectation.device, f"result {index}")
        _compare_metadata(want, got, f"result {index}", expectation.ignored)
    failed = isinstance(expected.result, Raised)
    if expectation.copies and failed:
        expected, actual = _without_inputs(expected), _without_inputs(actual)
    for index, (want, got) in enumerate(zip(expected.inputs, actual.inputs, strict=True)):
        ignored = expectation.ignored if expectation.copies else frozenset()
        _compare_metadata(want, got, f"input {index} after the call", ignored)
    if expectation.copies:
        _compare_objects(wanted, given, expected, actual)
    else:
        _compare_aliases(wanted, given, expected, actual, expectation.private_views)
    for index, (was_moved, is_moved) in enumerate(zip(expected.moved, actual.moved, strict=True)):
        if was_moved != is_moved and not expectation.copies:
            raise Mismatch(
                "alias",
                f"input {index} has (another storage, another address): {is_moved}, "
                f"on the CPU: {was_moved}",
            )
    _compare_versions(expected, actual)
    _compare_plain_leaves(expected.result, actual.result)
    if not expectation.values:
        return 0.0
    worst = 0.0
    for index, (want, got) in enumerate(zip(wanted, given, strict=True)):
        worst = max(worst, compare_values(want, got, f"result {index}"))
    for index, (want, got) in enumerate(zip(expected.inputs, actual.inputs, strict=True)):
        # What a failed call has enlarged and not yet written is uninitialised on both sides.
        if not (failed and expected.reshaped[index]):
            worst = max(worst, compare_values(want, got, f"input {index} after the call"))
    return worst


def _without_inputs(outcome: Outcome) -> Outcome:
    return replace(outcome, inputs=[], version_bumps=[], reshaped=[], moved=[])


def compare_values(expected: torch.Tensor, actual: torch.Tensor, where: str) -> float:
    """The largest difference within tolerance, 0.0 if there is none; `Mismatch` beyond it."""
    worst = 0.0
    for want, got in zip(_components(expected), _components(actual), strict=True):
        want, got = want.detach(), got.detach()
        if want.dtype is torch.complex32:  # has no operators; compare what lies in the memory
            want, got = (t.conj() if t.is_conj() else t for t in (want, got))
        got = got.cpu()
        if want.dtype.is_floating_point and want.dtype.itemsize == 1:
            # assert_close knows no tolerance for 8-bit floats, so they compare as bits.
            want, got = want.view(torch.uint8), got.view(torch.uint8)
        elif want.dtype is torch.complex32:  # has no torch.equal; its parts do
            want, got = torch.view_as_real(want), torch.view_as_real(got)
        if not torch.equal(want, got):
            worst = max(worst, _compare_closely(want, got, where))
    return worst


def _compare_closely(want: torch.Tensor, got: torch.Tensor, where: str) -> float:
    try:
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    except AssertionError:
        try:
            torch.testing.assert_close(got, want, equal_nan=True)
        except AssertionError as beyond:
            text = " ".join(str(beyond).split())
            raise Mismatch("value", f"{where} is {text}") from None
        wide = torch.complex128 if want.is_complex() else torch.float64
        difference = (got.to(wide) - want.to(wide)).abs().nan_to_num(0.0)
        return float(difference.max())
    return 0.0


def _components(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The strided tensors that a tensor consists of."""
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor]


def _compare_structure(expected: Outcome, actual: Outcome) -> None:
    want, got = tree.structure(expected.result), tree.structure(actual.result)
    if want != got:
        raise Mismatch("structure", f"the result is {got}, on the CPU {want}")


def _compare_device(
    want: torch.Tensor, got: torch.Tensor, device: torch.device, where: str
) -> None:
    if want.device.type != "cpu":
        raise Mismatch("device", f"the reference's {where} is on {want.device}")
    if got.device != device:
        raise Mismatch("device", f"{where} is on {got.device}, it must be on {device}")


def _compare_metadata(
    want: torch.Tensor, got: torch.Tensor, where: str, ignored: frozenset[str]
) -> None:
    expected, actual = _Metadata.of(want), _Metadata.of(got)
    for kind in _Metadata._fields:
        if kind in ignored:
            continue
        if getattr(expected, kind) != getattr(actual, kind):
            raise Mismatch(
                kind,
                f"{where} has {getattr(actual, kind)}, on the CPU {getattr(expected, kind)}",
            )


def _compare_versions(expected: Outcome, actual: Outcome) -> None:
    for index, (want, got) in enumerate(
        zip(expected.version_bumps, actual.version_bumps, strict=True)
    ):
        # Where a composite resizes its out=, PyTorch's resize_output calls the CPU's resize_
        # directly, uncounted, and goes through the dispatcher, counted, on any other device.
        counted_resize = expected.reshaped[index] and got == want + 1
        # How far a failed call got with a list of tensors shows in what the CPU counted; to count
        # all of the list then is as good, to count less is not.
        counted_failure = isinstance(expected.result, Raised) and got > want
        if got != want and not counted_resize and not counted_failure:
            raise Mismatch(
                "version", f"input {index}'s version counter rose by {got}, on the CPU by {want}"
            )


def _compare_aliases(
    wanted: list[torch.Tensor],
    given: list[torch.Tensor],
    expected_outcome: Outcome,
    actual_outcome: Outcome,
    private_views: bool,
) -> None:
    """Results against the inputs and against the results before them."""
    inputs = len(expected_outcome.inputs)
    expected_known = _Known(expected_outcome.inputs)
    actual_known = _Known(actual_outcome.inputs)
    for index, (want, got) in enumerate(zip(wanted, given, strict=True)):
        expected, actual = expected_known.alias_of(want), actual_known.alias_of(got)
        if private_views:
            expected, actual = expected.without_private_base(), actual.without_private_base()
        for field in _Alias._fields:
            if getattr(expected, field) != getattr(actual, field):
                raise Mismatch(
                    "alias",
                    f"result {index} has {field} {getattr(actual, field)}, on the CPU "
                    f"{getattr(expected, field)} (of {inputs} inputs, then results)",
                )
        if not private_views:
            expected_known.add(want)
            actual_known.add(got)


def _compare_objects(
    wanted: list[torch.Tensor], given: list[torch.Tensor], expected: Outcome, actual: Outcome
) -> None:
    """Which results are arguments themselves, the least that an operator on copies must keep."""
    for index, (want, got) in enumerate(zip(wanted, given, strict=True)):
        was = [position for position, tensor in enumerate(expected.inputs) if tensor is want]
        now = [position for position, tensor in enumerate(actual.inputs) if tensor is got]
        if was != now:
            raise Mismatch("alias", f"result {index} is input {now}, on the CPU {was}")


class _Known:
    """Tensors seen so far, with the identity of their storages."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._tensors: list[torch.Tensor] = []
        self._storages: list[tuple[int, int] | None] = []
        for tensor in tensors:
            self.add(tensor)

    def add(self, tensor: torch.Tensor) -> None:
        self._tensors.append(tensor)
        self._storages.append(storage_of(tensor))

    def alias_of(self, tensor: torch.Tensor) -> _Alias:
        storage = storage_of(tensor)
        shares_storage: tuple[int, ...] = ()
        shares_memory: tuple[int, ...] = ()
        if storage is not None:
            implementation, address = storage
            for index, other in enumerate(self._storages):
                if other is not None and other[0] == implementation:
                    shares_storage += (index,)
                if other is not None and address and other[1] == address:
                    shares_memory += (index,)
        is_view = tensor._is_view()
        return _Alias(
            is_object=self._index(tensor),
            shares_storage=shares_storage,
            shares_memory=shares_memory,
            is_view=is_view,
            base=self._base(tensor) if is_view else None,
        )

    def _base(self, tensor: torch.Tensor) -> int | None:
        base = tensor._base
        if base is None:
            return None
        index = self._index(base)
        return -1 if index is None else index

    def _index(self, tensor: torch.Tensor) -> int | None:
        for index, other in enumerate(self._tensors):
            if other is tensor:
                return index
        return None


def _compare_plain_leaves(expected: Any, actual: Any) -> None:
    for (path, want), (_, got) in zip(tree.walk(expected), tree.walk(actual), strict=True):
        if isinstance(want, torch.Tensor):
            continue
        both_nan = isinstance(want, (float, complex)) and want != want and got != got
        if not both_nan and want != got:
            raise Mismatch("value", f"result {path} is {got!r}, on the CPU {want!r}")
