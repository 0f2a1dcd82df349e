"""Owns: loading the C++ extension, with an error that says what does not fit.

The extension uses PyTorch's C++ interface, whose layout changes with each minor release. Where all
symbols happen to be found, a binary for another one would load, and corrupt memory later: so the
versions are compared first. Held by tests/test_torch_binary.py.
"""

from __future__ import annotations

import importlib
from types import ModuleType

import torch


def load() -> ModuleType:
    """The module `torch_fl._C`.

    Raises ImportError that names both torch versions when the extension was built for another
    minor release.
    """
    built_for = _built_for()
    if built_for and _minor(built_for) != _minor(torch.__version__):
        raise ImportError(
            f"torch_fl was built for torch {_minor(built_for)} ({built_for}), but this is torch "
            f"{torch.__version__}. {_way_out()}"
        )
    try:
        return importlib.import_module("torch_fl._C")
    except ImportError as error:
        raise ImportError(
            f"torch_fl's binary cannot be loaded by torch {torch.__version__}: {error}. It must be "
            f"built for the torch that is installed. {_way_out()}"
        ) from error


def _way_out() -> str:
    minor = _minor(torch.__version__)
    return (
        f"Install the torch-fl-core wheel for torch {minor}, or build it for this torch: `pip "
        f"install --no-build-isolation --no-deps --force-reinstall --no-binary torch-fl-core "
        f"torch-fl-core`."
    )


def _built_for() -> str:
    """The build's torch, which CMake writes down; empty in a source tree without binaries."""
    try:
        return str(importlib.import_module("torch_fl._build").TORCH)
    except ModuleNotFoundError:
        return ""


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
