"""Owns: one entry in one pass, that is reference call, device's call and comparison.

A sample that stock CPU rejects is skipped and not counted; if the
device carries it out all the same, that is recorded as information.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Final

import torch

from .call import Outcome, perform
from .cases import Case, NotASample, Pass
from .compare import Expectation, Mismatch, compare
from .declared import (
    CPU_RESULTS,
    LAYOUTS_BY_DEVICE,
    PRIVATE_VIEWS,
    UNDEFINED_ON_CPU,
    UNINITIALISED_RESULTS,
    plain,
)
from .fingerprints import fingerprint
from .movers import CPU, Mover
from .results import Failure, UnitResult
from .telling import Raised, told

_OVERLAP: Final = "memory location"
"""In the texts with which PyTorch refuses tensors that share memory."""

_KEPT_FAILURES: Final = 5
"""Failures of one entry in one pass that are recorded in words; all are counted."""


class Evaluator:
    """Evaluates entries on one device.

    Args:
        device: the device under test, with its index.
        seed: set before each side of each call.
        position: told where the evaluation is, so that a crash can be located.
        during_device_call: entered around the device's calls only; the self-check makes its
            operators wrong there.
        own_texts: the target's errors have texts of its own, not the CPU's.
        copies: operators run on copies; see `Configuration.copies`.
        fingerprints: keep one of each case.
    """

    def __init__(
        self,
        device: torch.device,
        seed: int,
        position: Callable[[str], None] = lambda text: None,
        during_device_call: Callable[[], AbstractContextManager[None]] = nullcontext,
        own_texts: bool = False,
        copies: bool = False,
        fingerprints: bool = False,
    ) -> None:
        self._device = device
        self._seed = seed
        self._position = position
        self._during_device_call = during_device_call
        self._own_texts = own_texts
        self._copies = copies
        self._fingerprints = fingerprints

    def evaluate(self, name: str, entry: Any, pass_: Pass, limit: int | None) -> UnitResult:
        """All cases of a pass, or per dtype the first ``limit`` that stock CPU carries out."""
        started = time.process_time()
        unit = UnitResult(entry=name, pass_name=pass_.name)
        expectation = self._expectation(name, pass_)
        for dtype in pass_.dtypes_of(entry):
            if (name, pass_.name, str(dtype)) in UNDEFINED_ON_CPU:
                continue
            self._evaluate_dtype(entry, pass_, dtype, limit, expectation, unit)
            if unit.device_lost:
                break
        unit.device_lost = unit.device_lost or self._is_lost()
        unit.seconds = round(time.process_time() - started, 3)
        return unit

    def _evaluate_dtype(
        self,
        entry: Any,
        pass_: Pass,
        dtype: torch.dtype,
        limit: int | None,
        expectation: Expectation,
        unit: UnitResult,
    ) -> None:
        remaining = limit
        for case in self._cases(entry, pass_, dtype, unit):
            if remaining == 0:
                unit.truncated = True
                return
            before = unit.failed, unit.skipped
            if self._evaluate_case(case, expectation, unit) and remaining is not None:
                remaining -= 1
            # (What the CPU rejects is tried on the device as well.)
            if (unit.failed, unit.skipped) != before and self._is_lost():
                unit.device_lost = True
                return

    def _is_lost(self) -> bool:
        """Whether an index out of range, or the like, in a kernel has ended the device's use: from
        then on every call of the process fails."""
        if self._device.type == "cpu":
            return False
        try:
            torch.get_device_module(self._device).synchronize(self._device)
        except RuntimeError:
            return True
        return False

    def _cases(
        self, entry: Any, pass_: Pass, dtype: torch.dtype, unit: UnitResult
    ) -> Iterator[Case]:
        """The cases; if making them fails, that is recorded as a failure of the harness."""
        cases = pass_.cases(entry, dtype)
        for index in itertools.count():
            self._position(f"{dtype} making case {index}")
            try:
                case = next(cases)
            except StopIteration:
                return
            except Exception as error:
                unit.failed += 1
                unit.failures.append(
                    Failure(f"{dtype} making case {index}", "samples", _text(error))
                )
                return
            yield case

    def _evaluate_case(self, case: Case, expectation: Expectation, unit: UnitResult) -> bool:
        """True if the case counted."""
        self._position(f"{case.label} on cpu")
        try:
            expected = self._call(unit.entry, case, CPU)
        except NotASample:
            return False
        except Exception:
            # Stock CPU's opinion of its own sample; what it is does not matter here.
            unit.skipped += 1
            self._note_if_accepted(unit.entry, case, unit)
            return False
        raised = expected.result if isinstance(expected.result, Raised) else Raised()
        if self._copies and _OVERLAP in str(raised.get("text")):
            return False  # copies do not overlap: there is nothing to refuse
        self._position(f"{case.label} on {self._device}")
        mark = ""
        try:
            with self._during_device_call():
                actual = self._call(unit.entry, case, self._device)
            if self._fingerprints:
                kept = actual if expectation.native_versions else replace(actual, version_bumps=[])
                mark = fingerprint(kept, values=expectation.values)
            difference = compare(expected, actual, expectation)
        except Exception as error:
            self._keep(case, f"-{mark}", unit)
            unit.failed += 1
            if len(unit.failures) < _KEPT_FAILURES:
                kind = error.kind if isinstance(error, Mismatch) else "raised"
                unit.failures.append(Failure(case.label, kind, _text(error)))
            return True
        self._keep(case, f"+{mark}", unit)
        unit.passed += 1
        if difference > 0.0:
            unit.inexact += 1
            unit.largest_difference = max(unit.largest_difference, difference)
        return True

    def _keep(self, case: Case, mark: str, unit: UnitResult) -> None:
        if self._fingerprints:
            assert case.label not in unit.fingerprints, f"two cases are called {case.label}"
            unit.fingerprints[case.label] = mark

    def _call(self, name: str, case: Case, device: torch.device) -> Outcome:
        arguments = Mover(device, name).arguments(case.arguments)
        function = told(case, device, own_texts=self._own_texts)
        return perform(function, arguments, device, self._seed)

    def _note_if_accepted(self, name: str, case: Case, unit: UnitResult) -> None:
        self._position(f"{case.label}, rejected by the CPU, on {self._device}")
        try:
            self._call(name, case, self._device)
        except Exception:
            return  # as it should be
        unit.accepted += 1
        unit.first_accepted = unit.first_accepted or case.label

    def _expectation(self, entry: str, pass_: Pass) -> Expectation:
        name = plain(entry)
        return Expectation(
            device=CPU if name in CPU_RESULTS else self._device,
            values=pass_.defined_memory or name not in UNINITIALISED_RESULTS,
            private_views=name in PRIVATE_VIEWS,
            any_strides=name in LAYOUTS_BY_DEVICE,
            copies=self._copies,
            native_versions=pass_.native_versions,
        )


def _text(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:500]
