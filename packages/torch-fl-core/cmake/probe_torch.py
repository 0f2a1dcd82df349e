"""Owns: what CMake needs to know of the installed torch, as a CMake list.

Printed: version, include folder, library folder, C++ ABI flag, 1 if the device guard has
isStreamCapturing. find_package(Torch) is not used: with a CUDA build of torch it demands a CUDA
toolkit, of which nothing here is needed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

MINIMUM = (2, 11)

version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
if version < MINIMUM:
    oldest = ".".join(map(str, MINIMUM))
    sys.exit(f"torch-fl needs torch {oldest} or newer, found {torch.__version__}")
root = Path(torch.__file__).parent
guard = (root / "include/c10/core/impl/DeviceGuardImplInterface.h").read_text()
print(
    torch.__version__,
    root / "include",
    root / "lib",
    int(torch.compiled_with_cxx11_abi()),
    int("isStreamCapturing" in guard),
    sep=";",
)
