"""Owns: tests of what a comparison of two programs' results sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from torch_fl.testing.programs.child import _saved
from torch_fl.testing.programs.compare import Outcome, Run, judge
from torch_fl.testing.programs.record import Record, RecordError

NAN = float("nan")


def _run(value: torch.Tensor | str, native: str = "cpu") -> Run:
    return Run("done", results=_saved({"x": value}, "cpu", native))


def _outcome(native: Any, flagos: Any, *more: Any) -> tuple[str, str]:
    verdict = judge([_run(value) for value in (native, *(more or (native,)))], _run(flagos))
    return verdict.outcome.value, verdict.detail


def _tensor(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def test_any_nan_equals_any_other() -> None:
    other = torch.tensor([0x7FC00001, 0x3F800000], dtype=torch.int32).view(torch.float32)
    assert other[0].isnan()
    assert _outcome(_tensor(NAN, 1), other) == ("equal", "")
    assert _outcome(_tensor(NAN, 1), _tensor(1, NAN))[0] == "differs"


def test_signs_of_zeros_are_seen() -> None:
    assert _outcome(_tensor(0.0), _tensor(-0.0)) == ("close", "x: 1 of 1 by up to 0 (largest 0)")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_tolerance_is_the_dtypes(dtype: torch.dtype) -> None:
    one = torch.ones(3, dtype=dtype)
    epsilon = torch.finfo(dtype).eps
    assert _outcome(one, one.clone())[0] == "equal"
    assert _outcome(one, one + epsilon)[0] == "close"
    assert _outcome(one, one + 0.1)[0] == "differs"


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_eight_bit_floats(dtype: torch.dtype) -> None:
    one = torch.ones(3).to(dtype)
    next_one = (one.view(torch.uint8) + 1).view(dtype)
    assert _outcome(one, one.clone())[0] == "equal"
    assert _outcome(one, next_one)[0] == ("close" if dtype is torch.float8_e4m3fn else "differs")
    assert _outcome(one, torch.full((3,), 2.0).to(dtype))[0] == "differs"


def test_integers_have_no_tolerance() -> None:
    assert _outcome(torch.tensor([10**6]), torch.tensor([10**6 + 1]))[0] == "differs"
    assert _outcome(torch.tensor([True, False]), torch.tensor([True, True])) == (
        "differs",
        "x: 1 of 2 by up to 1 (largest 1)",
    )


def test_what_a_tensor_is_like_is_seen() -> None:
    square = torch.arange(4.0).reshape(2, 2)
    assert _outcome(square, square.t().contiguous().t())[0] == "differs"
    assert _outcome(square, square.clone().requires_grad_())[0] == "differs"
    assert _outcome(square, square.reshape(4))[1].startswith("x: shape (2, 2), on flagos (4,)")
    assert _outcome(square, square.to_sparse())[0] == "differs"
    assert _outcome(square, "a text")[0] == "differs"
    assert _outcome(square.to_sparse(), square.to_sparse())[0] == "equal"
    assert _outcome(square.to_sparse_csr(), (square * 2).to_sparse_csr())[0] == "differs"


def test_the_device_of_a_result_is_seen_where_it_is_not_the_cpu() -> None:
    there, here = _run(torch.ones(2), "cuda"), _run(torch.ones(2), "cuda")
    here.results["x"]["about"]["device"] = "cpu"
    assert judge([there, there], here).outcome is Outcome.DIFFERS


def test_one_native_run_that_is_equal_is_enough() -> None:
    a, b, c = _tensor(1.0), _tensor(1.5), _tensor(9.0)
    assert _outcome(a, b, b)[0] == "equal"
    assert _outcome(a, _tensor(1.7), b)[0] == "varies natively"
    assert _outcome(a, c, b)[0] == "differs"


def test_sparse_results_of_other_sizes() -> None:
    a, b = torch.eye(3).to_sparse(), torch.ones(3, 3).to_sparse()
    assert _outcome(a, b)[0] == "differs"


def test_results_that_overlap_or_are_conjugated() -> None:
    row = torch.arange(3.0).expand(2, 3)
    assert _outcome(row, row)[0] == "equal"
    assert _outcome(row, row.contiguous())[0] == "differs"
    z = torch.tensor([1 + 2j])
    assert _outcome(z.conj(), z.conj().resolve_conj())[0] == "equal"
    assert _outcome(torch.ones(0, 3), torch.ones(0, 3))[0] == "equal"


def test_errors_of_two_sides() -> None:
    raised, other = Run("raised", "ValueError: a"), Run("raised", "ValueError: b")
    done = _run(torch.ones(1))
    assert judge([raised, raised], raised).outcome is Outcome.RAISES_ALIKE
    assert judge([raised, raised], other).outcome is Outcome.RAISES_DIFFERENTLY
    assert judge([done, raised], done).outcome is Outcome.RAISES_DIFFERENTLY
    verdict = judge([done, done], raised)
    assert verdict.detail == "natively done; on flagos raised ValueError: a"


def _record(file: Path, build: str, device: str) -> Record:
    record = Record(file)
    record.begin({"build": build, "device": device})
    return record


def test_outcomes_of_another_build_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    old = _record(file, "1", "a")
    old.keep("one", {"outcome": "equal"})
    old.keep("two", {"outcome": "equal"})
    assert _record(file, "1", "a").find("one")
    assert _record(file, "2", "a").find("one") is None
    assert _record(file, "1", "b").find("one") is None
    new = _record(file, "2", "a")
    new.keep("one", {"outcome": "differs"})
    assert _record(file, "1", "a").find("two")
    assert _record(file, "2", "a").find("one")
    file.write_text('{"format": 9, "builds": {}, "programs": {}}')
    with pytest.raises(RecordError, match="another format"):
        Record(file)
