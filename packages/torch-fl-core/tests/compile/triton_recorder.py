"""Owns: a Triton driver that launches nothing and records what it is given, and graphs to compile.

Kernels are generated and compiled for real, down to the machine's code; the device that would run
them is not needed for that. Results are whatever was in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

LAUNCHED: list[tuple[str, Any]] = []
"""Names of kernels, with the stream that each was launched on."""

SHARED_MEMORY = 227 * 1024


class Utils:
    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> Any:
        assert kernel
        return (1, 2, 32, 0, 1024)  # module, function, registers, spills, threads

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": SHARED_MEMORY, "multiprocessor_count": 132, "warpSize": 32}

    def unload_module(self, module: int) -> None:
        pass


class Launcher:
    def __init__(self, src: Any, metadata: Any) -> None:
        self.name = metadata.name

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        LAUNCHED.append((self.name, args[3]))  # after the grid's three sizes


class Recorder:
    """Stands for the driver of `target`."""

    def __init__(self, target: Any) -> None:
        self.utils = Utils()
        self.launcher_cls = Launcher
        self._target = target

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("flagos", 0)


def graphs() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, object]]]:
    """Functions, their arguments and Inductor's settings, one for each kind of code."""
    device = "flagos"
    matrix = torch.ones(64, 1024, device=device)
    half = torch.ones(512, 512, device=device, dtype=torch.bfloat16)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32)).to(device)
    heads = torch.ones(1, 2, 128, 64, device=device)
    from torch.nn.attention.flex_attention import flex_attention

    templates = {
        "max_autotune": True,
        "max_autotune_gemm_backends": "TRITON",
        "test_configs.max_mm_configs": 1,
    }

    def train(x: torch.Tensor) -> Any:
        return model(x).square().mean()

    return {
        "pointwise": (lambda x: torch.relu(x) * 2 + 1, (matrix,), {}),
        "reduction": (lambda x: x.sum(-1), (matrix,), {}),
        "softmax": (lambda x: torch.softmax(x, -1), (matrix,), {}),
        "norm": (nn.LayerNorm(1024).to(device), (matrix,), {}),
        "dropout": (lambda x: nn.functional.dropout(x, 0.5), (matrix,), {}),
        "training": (train, (torch.ones(32, 64, device=device),), {}),
        "matmul": (lambda a, b: torch.relu(a @ b), (half, half), templates),
        "attention": (flex_attention, (heads, heads, heads), {}),
        "mixed": (lambda x: (x + 1).cpu(), (matrix,), {}),
        "dynamic": (lambda x: x.relu().sum(-1), (matrix,), {}),
    }
