"""Owns: tests of random calls, right and wrong: flagos and the CPU agree on success, on the error,
and on the result to the last bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fuzzing import D, calls, differences, goes_elsewhere, perform
from hypothesis import HealthCheck, given, settings
from memory_level import settled
from out_of_memory import wait_for_level

import torch_fl  # noqa: F401  (makes the device)

QUIET = {
    "deadline": None,
    "database": None,
    "derandomize": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}


def _assert_agreed(name: str, arguments: tuple[Any, ...]) -> None:
    its, mine = perform(name, arguments, "cpu"), perform(name, arguments, D)
    told = f"{name}{arguments}"
    if goes_elsewhere(arguments):
        # A number on the CPU may join tensors of any device, a number on flagos may not.
        assert mine.error or not its.error, f"{told}: is done; CPU: {its.error} {its.text}"
        return
    assert mine.error == its.error, f"{told}: {mine.error} {mine.text}; CPU: {its.error} {its.text}"
    assert mine.text == its.text, told
    if not its.error:
        found = differences(mine.result, its.result)
        assert not found, f"{told}: {found}"
    if its.error and name.endswith(" out"):
        return  # the result may be resized already, over memory that nobody has written
    found = differences(mine.arguments, its.arguments, "arguments")
    assert not found, f"{told}: {found}"


@settings(max_examples=300, **QUIET)  # type: ignore[arg-type]
@given(calls())
def test_some_calls(call: tuple[str, tuple[Any, ...]]) -> None:
    _assert_agreed(*call)


@pytest.mark.slow
def test_many_calls_that_grow_nothing() -> None:
    @settings(max_examples=30_000, **{**QUIET, "derandomize": False})  # type: ignore[arg-type]
    @given(calls())
    def agreed(call: tuple[str, tuple[Any, ...]]) -> None:
        _assert_agreed(*call)

    level = settled()
    agreed()
    wait_for_level(level, "after all calls")
    assert torch.ones(2, device=D).sum().item() == 2
