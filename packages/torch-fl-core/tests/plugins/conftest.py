"""Owns: the throw-away plugins of these tests, installed once for all, and the mark by which these
tests are in the area of the wheels."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # children, forks

from catalogue import WHEELS
from throwaway import Shelf, install

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.plugins)


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    """Every wheel of the catalogue, really installed; a test takes those that it wants."""
    return install(WHEELS.values(), tmp_path_factory.mktemp("shelf"))
