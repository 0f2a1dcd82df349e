"""Owns: the process that runs programs on one device, and may crash.

It says `Ready` first, then reads a request in JSON from each line of its input, runs that program,
saves what it gave to the file that the request names, and answers with a line of JSON. Natively it
runs where flagos is not active: a backward pass beside it fails in PyTorch's engine.
"""

from __future__ import annotations

import faulthandler
import gc
import hashlib
import json
import os
import platform
import re
import sys
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Final

import torch

from .registry import PROGRAMS, Results, Skipped, load
from .settings import changed_settings, current_settings

FLAGOS: Final = "flagos"
_SEED: Final = 20
_PROCESSOR: Final = platform.processor() or "CPU"


def main(device: str) -> None:
    """Answers requests to run programs on the device until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what programs print is no answer
    faulthandler.enable()
    warnings.simplefilter("ignore")  # natively as on flagos they are the same, and many
    torch.set_num_threads(1)  # the order of a sum must not vary
    load()
    # What an allocator does at the first use is not a program's.
    torch.zeros(1, device=device).add_(1).cpu()
    _say(answers, _ready(device))
    for line in sys.stdin:
        request = json.loads(line)
        answer = _answer(request["program"], Path(request["path"]), device, request["native"])
        # Where settings or an error of the device stay, a fresh process must go on.
        answer["spent"] = answer["spent"] or not _usable(device)
        _say(answers, answer)


def _answer(name: str, path: Path, device: str, native: str) -> dict[str, Any]:
    """Runs a program; what became of it, but for its results, which are in the file."""
    missing = PROGRAMS[name].missing(native)
    if missing:
        return _answered("skipped", missing)
    before = current_settings()
    memory = _Memory(device)
    start = time.perf_counter()
    status, text = "done", ""
    try:
        torch.manual_seed(_SEED)
        results = PROGRAMS[name].function(device)
        memory.synchronize()
        taken = time.perf_counter() - start
        peak = memory.peak()
        torch.save(_saved(results, device, native), path)
    except Skipped as reason:
        status, text = "skipped", str(reason)
    except Exception as error:
        status, text = "raised", f"{type(error).__name__}: {neutral(str(error), native)}"
    if status != "done":
        taken, peak = time.perf_counter() - start, None
    changed = changed_settings(before)
    if changed and status == "done":
        status, text = "raised", f"AssertionError: the program left {', '.join(changed)} changed"
    return _answered(status, text, taken, peak, spent=bool(changed))


def _answered(
    status: str, text: str, seconds: float = 0.0, peak: int | None = None, spent: bool = False
) -> dict[str, Any]:
    """An answer; `spent` means that no other program should run in this process."""
    return {
        "status": status,
        "text": text,
        "seconds": round(seconds, 6),
        "peak": peak,
        "spent": spent,
    }


def neutral(text: str, native: str) -> str:
    """A text in which flagos, by all its names, and the device below have one name."""
    names = "|".join(map(re.escape, (FLAGOS, "PrivateUse1", "privateuseone", native)))
    return re.sub(rf"(?<![A-Za-z])({names})(?![a-z])", "DEVICE", text, flags=re.IGNORECASE)


def _saved(results: Results, device: str, native: str) -> dict[str, dict[str, Any]]:
    """The results, as they are described and in the CPU's memory.

    Each is a dict with "text", or with "about" (a dict of texts) and "parts" (CPU tensors).
    """
    saved: dict[str, dict[str, Any]] = {}
    for name, value in results.items():
        if isinstance(value, str):
            saved[name] = {"text": neutral(value, native)}
            continue
        saved[name] = {
            "about": _about(value, device, native),
            "parts": [_copied(part) for part in _parts(value)],
        }
    return saved


def _about(tensor: torch.Tensor, device: str, native: str) -> dict[str, str]:
    about = {
        "dtype": str(tensor.dtype),
        "shape": re.sub(r"\bj\d+", "j", str(tuple(tensor.shape))),  # a jagged size has a number
        "layout": str(tensor.layout),
        "requires_grad": str(tensor.requires_grad),
    }
    if tensor.layout == torch.strided and not tensor.is_nested:
        about["strides"] = str(tensor.stride())
    if tensor.layout == torch.sparse_coo:
        about["coalesced"] = str(tensor.is_coalesced())
    if native != "cpu":  # there the one is as good as the other
        about["device"] = "its own" if tensor.device.type == device else tensor.device.type
    return about


def _parts(tensor: torch.Tensor) -> Iterable[torch.Tensor]:
    if tensor.is_nested:
        jagged: Any = tensor
        return (jagged.values(), jagged.offsets())
    if tensor.layout == torch.sparse_coo:
        return (tensor._indices(), tensor._values())
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return (tensor.ccol_indices(), tensor.row_indices(), tensor.values())
    return (tensor,)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().resolve_conj().resolve_neg().cpu()
    return plain.clone(memory_format=torch.contiguous_format)


class _Memory:
    """The peak of device memory since this was made, where the device counts it."""

    def __init__(self, device: str) -> None:
        self._module = None if device == "cpu" else torch.get_device_module(device)
        if self._module is None:
            return
        gc.collect()
        self._module.synchronize()
        self._module.empty_cache()
        self._module.reset_peak_memory_stats()
        self._base = int(self._module.memory_allocated())

    def synchronize(self) -> None:
        if self._module is not None:
            self._module.synchronize()

    def peak(self) -> int | None:
        """Bytes beyond those that were taken before."""
        if self._module is None:
            return None
        return int(self._module.max_memory_allocated()) - self._base


def _usable(device: str) -> bool:
    try:
        return float(torch.ones(1, device=device).add(1).cpu()) == 2.0
    except RuntimeError:
        return False


def _ready(device: str) -> dict[str, Any]:
    """What this process stands on: "target" and "plugin" are of flagos alone."""
    module = None if device == "cpu" else torch.get_device_module(device)
    said: dict[str, Any] = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "device": module.get_device_name() if module is not None else _PROCESSOR,
    }
    if device != FLAGOS:
        owner = torch._C._get_privateuse1_backend_name()
        assert owner == "privateuseone", f"natively no other device may be active, but {owner} is"
        return said
    import torch_fl
    from torch_fl.plugins import selection

    chosen = selection.current()
    assert chosen.plugin is not None, "the device answers"
    said["target"] = chosen.target
    said["plugin"] = chosen.plugin.name
    said["plugin_version"] = chosen.plugin.version or torch_fl.__version__
    said["build"] = _digest()
    return said


def _digest() -> str:
    """A short name for what is in the files of torch_fl, and of its plugins that are loaded."""
    digest = hashlib.sha256()
    packages = {name.partition(".")[0] for name in sys.modules if name.startswith("torch_fl")}
    folders = [Path(folder) for name in packages for folder in _folders(sys.modules[name])]
    for folder in sorted(folders):
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".py", ".so", ".conf"):
                digest.update(str(path.relative_to(folder)).encode())
                digest.update(path.read_bytes())
    binary = sys.modules["torch_fl._C"].__file__  # elsewhere, where the package is editable
    digest.update(Path(str(binary)).read_bytes())
    return digest.hexdigest()[:12]


def _folders(package: ModuleType) -> list[str]:
    return list(getattr(package, "__path__", ()))


def _say(stream: IO[str], what: dict[str, Any]) -> None:
    stream.write(json.dumps(what) + "\n")
    stream.flush()
