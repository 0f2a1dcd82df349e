"""Owns: torch-fl-cuda on a machine with an NVIDIA GPU: installed, its programs and PyTorch's
databases against CUDA itself, and its benchmarks.

    python ci/hardware/cuda_plugin.py OUTPUT_FOLDER [STEP ...]

After cuda_core.py's step "build", in the environment that it made. Writes one JSON file per step to
OUTPUT_FOLDER; a step whose file says that it succeeded is not run again, and what a step keeps for
itself there (runs of the databases, benchmarks) goes on where it stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cuda_core import PYTHON, ROOT, record_chosen, run, seconds_left

PLUGIN = ROOT / "packages/torch-fl-cuda"
SUITES = "op_db,module_db,optim_db,error_inputs"
NATIVE_RUNS = ("native", "again", "third")

Step = Callable[[Path], tuple[int, str]]


def plugin(_output: Path) -> tuple[int, str]:
    """The plugin's wheel, made and installed; then it must be the one that is chosen."""
    options = ("--no-build-isolation", "--no-deps", "--no-index", "--force-reinstall")
    status, text = run(PYTHON, "-m", "pip", "install", *options, str(PLUGIN))
    if status:
        return status, text
    code = (
        "import torch, torch_fl\n"
        "from torch_fl.plugins import selection\n"
        "x = torch.ones(2, device='flagos')\n"
        "print(selection.current().plugin.name, x.device, torch.flagos.get_device_name())\n"
        "assert selection.current().plugin.name == 'cuda'\n"
    )
    return run(PYTHON, "-c", code)


KERNELS = PLUGIN / "tests/hardware/test_same_kernels.py"


def _pytest(output: Path, name: str, *words: str) -> tuple[int, str]:
    options = ("-q", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "--tb", "short")
    options += ("-p", "no:cacheprovider", "--disable-warnings")
    options += ("--junitxml", str(output / f"{name}.xml"))
    return run(PYTHON, "-m", "pytest", *options, *words, timeout=430)


def tests(output: Path) -> tuple[int, str]:
    words = ("-n", "6", "--timeout", "150", "--ignore", str(KERNELS), str(PLUGIN / "tests"))
    return _pytest(output, "tests", *words)


def kernels(output: Path) -> tuple[int, str]:
    """What both sides launch, by two processes that run one after the other: no workers."""
    return _pytest(output, "kernels", "--timeout", "300", str(KERNELS))


def programs(output: Path) -> tuple[int, str]:
    file = output / "programs-outcome.json"
    return run(PYTHON, "-m", "torch_fl.testing.programs", "--json", str(file), timeout=500)


def _suites(output: Path, device: str, name: str, workers: int) -> tuple[int, str]:
    """One run of PyTorch's databases, with fingerprints. What fails against the CPU is no failure
    of this step: natively some of it does too."""
    file = output / f"{name}.jsonl"
    words = ("--device", device, "--suite", SUITES, "--configuration", "plain", "--fingerprints")
    words += ("--workers", str(workers), "--out", str(file), "--resume")
    status, text = run(PYTHON, "-m", "torch_fl.testing", *words, timeout=550)
    return (0 if status == 1 else status), text


def compared(output: Path) -> tuple[int, str]:
    """Several native runs: what varies there from run to run need not be equal here."""
    natives = [file for name in NATIVE_RUNS if (file := output / f"{name}.jsonl").exists()]
    words = ("--merge", output / "flagos.jsonl", "--against", *natives, "--record", output)
    return run(PYTHON, "-m", "torch_fl.testing", *map(str, words))


def bench(output: Path) -> tuple[int, str]:
    script = PLUGIN / "bench/cuda.py"
    file = output / "performance.json"
    seconds = seconds_left(530)
    words = ("--strict", "--json", str(file), "--budget", f"{seconds:.0f}")
    return run(PYTHON, str(script), *words, timeout=seconds + 60)


STEPS: dict[str, Step] = {
    "plugin": plugin,
    "tests": tests,
    "kernels": kernels,
    "programs": programs,
    "flagos": partial(_suites, device="flagos", name="flagos", workers=4),
    **{name: partial(_suites, device="cuda", name=name, workers=4) for name in NATIVE_RUNS},
    "compared": compared,
    "bench": bench,
}


if __name__ == "__main__":
    sys.exit(record_chosen(Path(sys.argv[1]).resolve(), sys.argv[2:], STEPS))
