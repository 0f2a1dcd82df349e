"""Owns: torch.compile on a machine with an NVIDIA GPU: the smoke set and PyTorch's operators,
compiled on flagos and natively, the compiler's own tests, and the benchmark in all modes.

    python ci/hardware/cuda_compile.py OUTPUT_FOLDER [STEP ...]

After cuda_core.py's step "build" and cuda_plugin.py's step "plugin", in the environment that they
made. Writes one JSON file per step to OUTPUT_FOLDER; a step whose file says that it succeeded is
not run again, and what a step keeps for itself there goes on where it stopped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from cuda_core import CORE, PYTHON, record_chosen, run, seconds_left

MODES = ("default", "max-autotune", "reduce-overhead")
MODELS = ("mlp", "conv", "transformer", "qwen3", "flex")
LIMIT_S = 540
GOOD = ("equal", "close")
NATIVELY = """
import sys, torch_fl_entry
torch_fl_entry.natively("torch_fl.testing.compiled.__main__", "main", sys.argv[1:])
"""

Step = Callable[[Path], tuple[int, str]]


def smoke(output: Path, device: str) -> tuple[int, str]:
    """The graphs of torch_fl.testing.compiled, each compiled against itself eager; natively in a
    process without flagos, where what fails is no failure: `graphs` judges."""
    words = ("--device", device, "--json", str(output / f"graphs-{device}.jsonl"))
    if device == "flagos":
        return run(PYTHON, "-m", "torch_fl.testing.compiled", *words, timeout=LIMIT_S)
    return run(PYTHON, "-c", NATIVELY, *words, timeout=LIMIT_S)


def graphs(output: Path) -> tuple[int, str]:
    """What is good natively is good on flagos, with no graph break more."""
    native, flagos = (_verdicts(output / f"graphs-{name}.jsonl") for name in ("cuda", "flagos"))
    wrong = []
    for name, graph in flagos.items():
        theirs = native.get(name)
        good = theirs is None or theirs["verdict"] in GOOD
        if graph["verdict"] not in GOOD and good:
            wrong.append(f"{name}: {graph['verdict']} {graph['notes']}")
        elif theirs is not None and graph["breaks"] > theirs["breaks"]:
            wrong.append(f"{name}: {graph['breaks']} breaks, natively {theirs['breaks']}")
    missing = native.keys() - flagos.keys()
    wrong += [f"{name}: not run on flagos" for name in sorted(missing)]
    said = [f"{len(flagos)} graphs on flagos, {len(native)} natively", *wrong]
    return (1 if wrong or not flagos or not native else 0), "\n".join(said)


def _verdicts(file: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        if not one.get("started"):
            found[one["name"]] = one
    return found


def operators(output: Path, device: str) -> tuple[int, str]:
    """Operators compiled against eager. What fails natively is no failure: `compared` judges."""
    file = output / f"operators-{device}.jsonl"
    words: tuple[str, ...] = (
        "--suite",
        "compiled",
        "--configuration",
        "plain",
        "--tier",
        "full",
        "--workers",
        "8",
    )
    words += ("--device", device, "--fingerprints", "--time-limit", "300")
    words += ("--out", str(file), "--resume")
    status, text = run(PYTHON, "-m", "torch_fl.testing", *words, timeout=LIMIT_S)
    return (0 if status == 1 else status), text


def compared(output: Path) -> tuple[int, str]:
    """Of the operators that pass natively, those that pass on flagos."""
    device, native = (str(output / f"operators-{name}.jsonl") for name in ("flagos", "cuda"))
    return run(PYTHON, "-m", "torch_fl.testing", "--merge", device, "--against", native)


def bench(output: Path) -> tuple[int, str]:
    """The benchmark's rows, in turns; those that are not complete go on in the next run."""
    seconds = seconds_left(LIMIT_S)
    words = ("--compare", "--native", "cuda", "--mode", *MODES, "--model", *MODELS)
    words += ("--json", str(output / "compile.json"), "--budget", f"{seconds:.0f}")
    return run(PYTHON, str(CORE / "bench/compile.py"), *words, timeout=seconds + 60)


STEPS: dict[str, Step] = {
    "smoke-flagos": partial(smoke, device="flagos"),
    "smoke-cuda": partial(smoke, device="cuda"),
    "graphs": graphs,
    "bench-compile": bench,
    "operators-flagos": partial(operators, device="flagos"),
    "operators-cuda": partial(operators, device="cuda"),
    "operators-compared": compared,
}


if __name__ == "__main__":
    sys.exit(record_chosen(Path(sys.argv[1]).resolve(), sys.argv[2:], STEPS))
