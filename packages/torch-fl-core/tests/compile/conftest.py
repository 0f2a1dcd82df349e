"""Owns: the mark of the compiler's tests, by which they are in an area of their own, and their
fresh start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.compile)


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """Nothing that was compiled or counted before, and nothing left for the next test."""
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()
