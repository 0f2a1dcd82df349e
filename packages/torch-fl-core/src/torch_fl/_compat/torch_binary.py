"""Owns: loading the C++ extension, with an error that says what does not fit.

The extension uses PyTorch's C++ interface, whose layout changes with each minor release.
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
    try:
        return importlib.import_module("torch_fl._C")
    except ImportError as error:
        raise ImportError(
            f"torch_fl's binary cannot be loaded by torch {torch.__version__}: {error}. It must be "
            f"built for the torch that is installed: install the torch-fl-core wheel for this "
            f"torch, or build it with `pip install --no-build-isolation torch-fl-core`."
        ) from error
