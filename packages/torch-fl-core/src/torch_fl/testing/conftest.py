"""Owns: that ``pytest --pyargs torch_fl.testing`` runs without ``-p``.

Then everything is run: options are known to pytest only by ``-p``.
"""

from __future__ import annotations

import pytest

from torch_fl.testing import pytest_plugin
from torch_fl.testing.pytest_plugin import conformance_workers

__all__ = ["conformance_workers", "pytest_generate_tests"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What the plugin does, unless it is loaded and does it itself."""
    if not metafunc.config.pluginmanager.has_plugin(pytest_plugin.__name__):
        pytest_plugin.pytest_generate_tests(metafunc)
