"""Owns: the test that pytest runs for every unit; `pytest_plugin` collects this file."""

from __future__ import annotations

from typing import Any

import pytest

from torch_fl.testing.pytest_plugin import check


def test_conforms(
    conformance_unit: Any, conformance_workers: Any, pytestconfig: pytest.Config
) -> None:
    """The device does what stock CPU does."""
    check(conformance_unit, conformance_workers, pytestconfig)
