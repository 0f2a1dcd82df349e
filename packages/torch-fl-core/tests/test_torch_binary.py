"""Owns: tests of a binary that meets a torch it was not built for: one clear line, torch works."""

from __future__ import annotations

import re

import pytest
import torch
from children import run_child

BUILT_FOR = """
import sys, types
build = types.ModuleType("torch_fl._build")
build.TORCH = {version!r}
sys.modules["torch_fl._build"] = build
"""
MINOR = ".".join(torch.__version__.split(".")[:2])


@pytest.mark.parametrize("version", ["1.13.1+cpu", f"{MINOR}9.0", "3.0.0a0+git1"])
def test_another_minor_release_is_one_line(version: str) -> None:
    child = run_child(BUILT_FOR.format(version=version) + "import torch_fl")
    line = child.stderr.strip().splitlines()[-1]
    assert child.returncode == 1
    assert line.startswith("ImportError: torch_fl was built for torch"), child.stderr
    for part in (version, torch.__version__, f"wheel for torch {MINOR}"):
        assert part in line


def test_by_autoload_it_is_a_warning_and_torch_works() -> None:
    code = BUILT_FOR.format(version="1.13.1") + "import torch; print(torch.ones(2).sum().item())"
    child = run_child(code, TORCH_DEVICE_BACKEND_AUTOLOAD="1", FLAGOS_AUTOLOAD="1")
    assert child.returncode == 0, child.stderr
    assert child.stdout == "2.0\n"
    assert child.stderr.count("built for torch 1.13") == 1
    assert "Traceback" not in child.stderr


@pytest.mark.parametrize("patch", ["99", "0+vendor", "0a0+git1"])
def test_another_patch_or_a_fork_of_the_same_minor_release_fits(patch: str) -> None:
    code = BUILT_FOR.format(version=f"{MINOR}.{patch}") + "import torch_fl"
    assert run_child(code).returncode == 0


def test_a_binary_that_does_not_load_is_one_line_too() -> None:
    code = f"""{BUILT_FOR.format(version=torch.__version__)}
sys.modules["torch_fl._C"] = None
import torch_fl
"""
    line = run_child(code).stderr.strip().splitlines()[-1]
    assert re.match("ImportError: torch_fl.s binary cannot be loaded by torch", line)
    assert f"wheel for torch {MINOR}" in line
