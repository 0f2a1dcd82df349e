"""Owns: which CUDA this PyTorch has, and the error where it has none. Imports torch when called."""

from __future__ import annotations

import re
from pathlib import Path

DRIVER = Path("/proc/driver/nvidia/version")


def check() -> None:
    """Raises ValueError where this PyTorch was built without NVIDIA's CUDA."""
    import torch

    if torch.version.cuda:
        return
    built = f"for AMD's ROCm {torch.version.hip}" if torch.version.hip else "without CUDA"
    raise ValueError(
        f"This PyTorch, {torch.__version__}, was built {built}, so it cannot use NVIDIA GPUs. "
        f"Install a build with CUDA (https://pytorch.org/get-started/locally says how), or set "
        f"FLAGOS_PLUGIN=host to work on CPU memory."
    )


def versions() -> dict[str, str]:
    """The versions of driver, CUDA, cuDNN and NCCL that this process has, for reports."""
    import torch

    found = {"NVIDIA driver": driver(), "CUDA of PyTorch": torch.version.cuda or "none"}
    if torch.backends.cudnn.is_available():
        found["cuDNN"] = str(torch.backends.cudnn.version())
    if hasattr(torch.cuda, "nccl") and hasattr(torch._C, "_nccl_version"):
        found["NCCL"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found


def driver(path: Path = DRIVER) -> str:
    """The loaded driver's version, such as "570.86.15"; "not loaded" where the kernel has none."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "not loaded"
    version = re.search(r"\b\d{3,}\.\d+(\.\d+)*\b", text)
    return version.group() if version else text.splitlines()[0].strip()
