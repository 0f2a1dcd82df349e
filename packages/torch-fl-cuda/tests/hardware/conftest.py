"""Owns: which tests need an NVIDIA GPU, and the two processes that they compare.

Everything in this folder is skipped where PyTorch sees no GPU. In the tests' own process flagos
stands on it; what needs a fresh process, or CUDA used natively, runs in a child.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent
HEAD = "import json, os, sys\nimport torch\n"

Child = Callable[..., subprocess.CompletedProcess[str]]
Answer = Callable[..., Any]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what is collected from this folder where there is no GPU to show it on."""
    if torch.cuda.is_available():
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU and a PyTorch with CUDA"))


def run(code: str, *, timeout: float = 180, **env: str | None) -> subprocess.CompletedProcess[str]:
    """`code`, after imports of json, os, sys and torch, in a new process.

    It activates nothing by itself: code that wants flagos imports torch_fl. `env`: variables on top
    of this process's; None removes one.
    """
    variables = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **env}
    return subprocess.run(
        [sys.executable, "-c", HEAD + textwrap.dedent(code)],
        env={name: value for name, value in variables.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def answer(code: str, *, timeout: float = 180, **env: str | None) -> Any:
    """What a child that must end without an error printed as its last line of JSON."""
    done = run(code, timeout=timeout, **env)
    assert done.returncode == 0, f"ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def child() -> Child:
    """`run`: a new process, whatever becomes of it."""
    return run


@pytest.fixture(scope="session")
def said() -> Answer:
    """`answer`: what a new process printed last, as JSON."""
    return answer


@pytest.fixture(scope="session", autouse=True)
def _on_the_gpu() -> None:
    import torch_fl  # noqa: F401
    from torch_fl.plugins import selection

    plugin = selection.current().plugin
    assert plugin is not None
    assert plugin.name == "cuda", "flagos must stand on the GPU here: is torch-fl-cuda installed?"
