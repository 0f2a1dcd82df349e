"""Owns: the hooks by which torch-fl finds NVIDIA GPUs and stands on PyTorch's CUDA."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from torch_fl.plugins.spec import DelegateRuntime, Detection, Identity, Routes, hookimpl
from torch_fl_cuda import detection

if TYPE_CHECKING:
    from torch_fl.plugins.machine import Machine
    from torch_fl.plugins.spec import TritonTarget

_HERE = Path(__file__).parent


@hookimpl
def torch_fl_identity() -> Identity:
    return Identity("cuda", api_version=(1, 0), title="NVIDIA GPUs")


@hookimpl
def torch_fl_detect(machine: Machine) -> Detection:
    return detection.detect(machine)


@hookimpl
def torch_fl_runtime() -> DelegateRuntime:
    """PyTorch's CUDA. Raises ValueError, which the device's first use shows, where it has none or
    the environment hides every GPU."""
    from torch_fl.plugins.machine import Machine
    from torch_fl_cuda import installed

    installed.check()
    if (why := detection.hidden(Machine.here())) is not None:
        raise ValueError(
            f"No CUDA GPUs are available. {why} Unset {detection.VISIBLE} or name GPUs that "
            f"`nvidia-smi -L` lists, or set FLAGOS_PLUGIN=host to work on CPU memory."
        )
    return DelegateRuntime("cuda", foreach_takes_any_device=True)


@hookimpl
def torch_fl_target_module() -> str:
    return "torch.cuda"


@hookimpl
def torch_fl_routes() -> Routes:
    """No defaults: CUDA's own kernels, which the core takes. FLAGOS_BACKEND_CONFIG=flaggems puts
    FlagGems' in front of them."""
    return Routes(profiles={"flaggems": _HERE / "flaggems.conf"})


@hookimpl
def torch_fl_triton_target() -> TritonTarget:
    from torch_fl.plugins.spec import TritonTarget

    return TritonTarget("cuda", warp_size=32, cuda_like=True, cudagraphs=True, cpp_wrapper=True)


@hookimpl
def torch_fl_environment() -> Mapping[str, str]:
    from torch_fl_cuda import installed

    return installed.versions()
