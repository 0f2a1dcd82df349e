"""Owns: the throw-away plugins of these tests, installed once for all, and the mark by which these
tests are in the area of plugins and wheels: much of the command line is about them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # children
sys.path.insert(0, str(Path(__file__).parents[1] / "plugins"))  # catalogue, throwaway

from catalogue import WHEELS
from throwaway import Shelf, Wheel, install

_MORE = (
    Wheel("leaves", "import os; os._exit(0)\n"),
    Wheel("chatty", "print('hello')\n"),
    Wheel("crashes", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)\n"),
    Wheel("waits", "import time; time.sleep(3600)\n"),
)


_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.plugins)


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    """Some wheels, really installed; a test takes those that it wants."""
    some = [WHEELS[name] for name in ("good", "noimport", "unknown")]
    return install([*some, *_MORE], tmp_path_factory.mktemp("shelf"))
