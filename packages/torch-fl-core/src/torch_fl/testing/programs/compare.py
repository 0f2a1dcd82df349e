"""Owns: the judgement on one program: what it gave on flagos, against what it gave natively.

Equal are names, dtypes, shapes, strides, layouts, devices, and values bit for bit; but any NaN
equals any other.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

__all__ = ["Outcome", "Run", "Verdict", "judge"]

_SHOWN: Final = 3
_SPREAD: Final = 4.0  # how far beyond the spread of two native runs a third one may lie
_EIGHT_BITS_RTOL: Final = 0.13  # a step between 8-bit floats, for which PyTorch has no tolerance
_EIGHT_BITS_ATOL: Final = 2.0**-9


class Outcome(str, enum.Enum):
    """What became of a program, from the best to the worst."""

    EQUAL = "equal"
    SKIPPED = "skipped"
    """on all sides, for the same reason"""
    VARIES = "varies natively"
    """natively too it gives something else each time, and on flagos something like it"""
    CLOSE = "close"
    """not equal, but within PyTorch's tolerance for the dtype"""
    DIFFERS = "differs"
    RAISES_ALIKE = "raises alike"
    """the same error on all sides: nothing was compared"""
    RAISES_DIFFERENTLY = "raises differently"


@dataclass(frozen=True)
class Run:
    """A program on one side: `text` is the error or the reason, `peak` is in bytes.

    `status` is "done", "skipped", "raised", "crashed" or "timed out"; `results` are what the child
    has saved.
    """

    status: str
    text: str = ""
    seconds: float = 0.0
    peak: int | None = None
    results: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """An outcome, what led to it, and the largest error of a value relative to its tensor's
    largest magnitude: 0.0 where all are equal."""

    outcome: Outcome
    detail: str = ""
    worst: float = 0.0


@dataclass(frozen=True)
class _Difference:
    largest: float
    scale: float
    count: int
    of: int
    close: bool

    @property
    def relative(self) -> float:
        return self.largest / self.scale if self.scale else self.largest

    def __str__(self) -> str:
        return f"{self.count} of {self.of} by up to {self.largest:.3g} (largest {self.scale:.3g})"


def judge(natives: Sequence[Run], flagos: Run) -> Verdict:
    """Compares a run on flagos with native ones, of which there must be at least one."""
    first = natives[0]
    if any(run.status != "done" for run in (*natives, flagos)):
        return _judge_ends(natives, flagos)
    if missing := first.results.keys() ^ flagos.results.keys():
        return Verdict(Outcome.DIFFERS, f"only one side has {', '.join(sorted(missing)[:_SHOWN])}")
    verdicts = {
        name: _judge_result([run.results[name] for run in natives], flagos.results[name])
        for name in first.results
    }
    order = list(Outcome)
    outcome = max((found.outcome for found in verdicts.values()), key=order.index)
    worst_first = sorted(verdicts.items(), key=lambda item: -order.index(item[1].outcome))
    told = [f"{name}: {found.detail}" for name, found in worst_first if found.detail]
    more = f"; and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    worst = max(found.worst for found in verdicts.values())
    return Verdict(outcome, "; ".join(told[:_SHOWN]) + more, worst)


def _judge_ends(natives: Sequence[Run], flagos: Run) -> Verdict:
    ends = {(run.status, run.text) for run in (*natives, flagos)}
    if len(ends) == 1:
        ((status, text),) = ends
        alike = Outcome.SKIPPED if status == "skipped" else Outcome.RAISES_ALIKE
        return Verdict(alike, text)
    native = next((run for run in natives if run.status != flagos.status), natives[0])
    return Verdict(
        Outcome.RAISES_DIFFERENTLY,
        f"natively {native.status} {native.text}".rstrip()
        + f"; on flagos {flagos.status} {flagos.text}".rstrip(),
    )


def _judge_result(natives: Sequence[Mapping[str, Any]], flagos: Mapping[str, Any]) -> Verdict:
    """One result of a program."""
    first = natives[0]
    if "text" in first or "text" in flagos:
        if any(native == flagos for native in natives):
            return Verdict(Outcome.EQUAL)
        return Verdict(Outcome.DIFFERS, f"{_told(first)}, on flagos {_told(flagos)}")
    wanted, about = first["about"], flagos["about"]
    if all(native["about"] != about for native in natives):
        unlike = [name for name in wanted if wanted[name] != about.get(name)]
        text = ", ".join(f"{name} {wanted[name]}, on flagos {about.get(name)}" for name in unlike)
        return Verdict(Outcome.DIFFERS, text)
    parts = flagos["parts"]
    if any(_equal(native["parts"], parts) for native in natives):
        return Verdict(Outcome.EQUAL)
    if any(native["about"] != about for native in natives):
        return Verdict(Outcome.VARIES, "even shapes vary")
    found = _worst(first["parts"], parts)
    spreads = [_worst(first["parts"], native["parts"]) for native in natives[1:]]
    varies = [spread for spread in spreads if spread.count]
    if not varies:
        outcome = Outcome.CLOSE if found.close else Outcome.DIFFERS
        return Verdict(outcome, str(found), found.relative)
    spread = max(varies, key=lambda one: one.largest)
    if found.close or found.largest <= _SPREAD * spread.largest:
        return Verdict(Outcome.VARIES, f"{found}; natively {spread}", found.relative)
    return Verdict(Outcome.DIFFERS, f"{found}; natively {spread}", found.relative)


def _told(result: Mapping[str, Any]) -> str:
    return repr(result["text"]) if "text" in result else f"a tensor ({result['about']})"


def _equal(wanted: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> bool:
    return all(
        want.shape == got.shape and not _unlike(want, got).any()
        for want, got in zip(wanted, given, strict=True)
    )


def _unlike(want: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
    """Where two tensors of one shape and dtype are not equal; complex ones have two places each."""
    want, got = _real(want), _real(got)
    if not want.is_floating_point():
        return want != got
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[want.element_size()]
    both_nan = _wide(want).isnan() & _wide(got).isnan()
    return (want.view(bits) != got.view(bits)) & ~both_nan


def _worst(wanted: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> _Difference:
    """The difference of the parts of one tensor."""
    found = [_difference(want, got) for want, got in zip(wanted, given, strict=True)]
    return _Difference(
        largest=max(one.largest for one in found),
        scale=max(one.scale for one in found),
        count=sum(one.count for one in found),
        of=sum(one.of for one in found),
        close=all(one.close for one in found),
    )


def _difference(want: torch.Tensor, got: torch.Tensor) -> _Difference:
    if want.shape != got.shape:
        return _Difference(float("inf"), 1.0, got.numel(), got.numel(), close=False)
    unlike = _unlike(want, got)
    apart = (_wide(_real(want)) - _wide(_real(got))).abs()[unlike]
    finite = _wide(_real(want)).abs().nan_to_num(0.0, 0.0, 0.0)
    return _Difference(
        largest=float(apart.nan_to_num(float("inf")).max()) if apart.numel() else 0.0,
        scale=float(finite.max()) if finite.numel() else 0.0,
        count=int(unlike.count_nonzero()),
        of=unlike.numel(),
        close=_close(_real(want), _real(got)),
    )


def _close(want: torch.Tensor, got: torch.Tensor) -> bool:
    rtol, atol = None, None
    if want.is_floating_point() and want.element_size() == 1:
        want, got, rtol, atol = want.float(), got.float(), _EIGHT_BITS_RTOL, _EIGHT_BITS_ATOL
    try:
        torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError:
        return False
    return True


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.float64)
