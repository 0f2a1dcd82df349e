"""Owns: the throw-away plugins of these tests, installed once for all of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # children, forks

from catalogue import WHEELS
from throwaway import Shelf, install


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    """Every wheel of the catalogue, really installed; a test takes those that it wants."""
    return install(WHEELS.values(), tmp_path_factory.mktemp("shelf"))
