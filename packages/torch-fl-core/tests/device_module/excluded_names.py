"""Owns: which public names of torch.cuda torch.flagos does not have, each with its reason.

Of a backend that stands on a device with a module of its own, torch.flagos gives that module's
submodules under their names, so those marked so are missing on the host alone.
"""

from __future__ import annotations

_LIBRARY = "one vendor's library; there where the backend's own module has it"

EXCLUDED = {
    "CudaError": "one vendor's status numbers as an exception; PyTorch's is AcceleratorError",
    "cudaStatus": "one vendor's status numbers",
    "DeferredCudaCallError": "calls that wait for the start cannot fail here: they only set seeds",
    "DEVICE_REQUIREMENT": "which of one vendor's chips a release of PyTorch was built for",
    "PYTORCH_RELEASES_CODE_CC": "which of one vendor's chips a release of PyTorch was built for",
    "GreenContext": "shares of one vendor's processor",
    "gds": f"files straight into device memory: {_LIBRARY}",
    "green_contexts": f"shares of a processor: {_LIBRARY}",
    "jiterator": f"kernels from source text: {_LIBRARY}",
    "nccl": f"collectives: {_LIBRARY}; torch.distributed is the way for every backend",
    "nvtx": f"marks in its profiler: {_LIBRARY}; torch.profiler.record_function is the way",
    "profiler": f"switching its profiler on: {_LIBRARY}; torch.profiler is the way",
    "tunable": f"choosing among its kernels: {_LIBRARY}",
}
