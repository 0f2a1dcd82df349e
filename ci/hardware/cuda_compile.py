"""Owns: the steps of torch.compile: the smoke set and PyTorch's operators, compiled on flagos and
natively, and the benchmark in all modes. (The compiler's tests are among the plugin's.)

What a step keeps for itself in the folder of results goes on where it stopped.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from cuda_plugin import ON_CUDA, against
from steps import CORE, PYTHON, TIMED_OUT, Job, Step

SHARDS = 4
COMPLETE = (0, 1)
"""Exit statuses of the smoke set with which every graph has a verdict."""

NATIVELY = """
import sys, torch, torch_fl_entry
torch_fl_entry.is_command_line = True
from torch_fl.testing.compiled.__main__ import main
assert torch._C._get_privateuse1_backend_name() == "privateuseone", "flagos is active"
sys.exit(main(sys.argv[1:]))
"""


def _smoke(job: Job, device: str) -> int:
    """The graphs of torch_fl.testing.compiled, each compiled against itself eager, in several
    processes; natively in processes without flagos. What came of them `graphs` judges."""
    with ThreadPoolExecutor(SHARDS) as pool:
        statuses = pool.map(partial(_shard, job, device), range(1, SHARDS + 1))
        return next((status for status in statuses if status != 0), 0)


def _shard(job: Job, device: str, number: int) -> int:
    """One process, and new ones for what is left where a graph ended it or made the device
    unusable in it: each has begun at least one more graph, or it is given up."""
    file = job.output / f"graphs-{device}-{number}.jsonl"
    program = ("-m", "torch_fl.testing.compiled") if device == "flagos" else ("-c", NATIVELY)
    words = ["--device", device, "--shard", f"{number}/{SHARDS}", "--json", str(file)]
    variables = {**ON_CUDA, "TORCHINDUCTOR_COMPILE_THREADS": "2"}  # 2 * SHARDS processes at once
    while True:
        before = _size(file)
        status = job.run(PYTHON, *program, *words, part=str(number), variables=variables)
        if status in COMPLETE and file.exists():
            return 0
        if status == TIMED_OUT or _size(file) == before:
            return status or 1


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _graphs(job: Job) -> int:
    """What is good natively is good on flagos, with no graph break more and compiled from the same
    operators, and nothing is missing."""
    flagos, cuda = (
        [str(path) for path in sorted(job.output.glob(f"graphs-{device}-*.jsonl"))]
        for device in ("flagos", "cuda")
    )
    words = ["--merge", *flagos, "--against", *cuda]
    return job.run(PYTHON, "-m", "torch_fl.testing.compiled", *words)


def _operators(job: Job, device: str) -> int:
    """Operators compiled against eager. What fails natively is no failure: `operators-compared`
    judges."""
    words = ["--suite", "compiled", "--configuration", "plain", "--tier", "full", "--workers", "8"]
    words += ["--device", device, "--fingerprints", "--time-limit", "300"]
    words += ["--out", str(job.output / f"operators-{device}.jsonl"), "--resume"]
    status = job.run(PYTHON, "-m", "torch_fl.testing", *words, variables=ON_CUDA)
    return 0 if status == 1 else status


def _operators_compared(job: Job) -> int:
    return against(job, "operators-flagos", "operators-cuda")


def _bench(job: Job) -> int:
    """The rows in turns; those that are not complete go on in the next visit."""
    words = ["--compare", "--native", "cuda", "--mode", "all", "--pairs", "3"]
    words += ["--json", str(job.output / "compile.json")]
    words += ["--budget", f"{job.visit.left() - 10:.0f}"]
    return job.run(PYTHON, str(CORE / "bench/compile.py"), *words, variables=ON_CUDA)


STEPS = (
    *(Step(f"smoke-{name}", partial(_smoke, device=name)) for name in ("flagos", "cuda")),
    Step("graphs", _graphs, each_visit=True),
    *(Step(f"operators-{name}", partial(_operators, device=name)) for name in ("flagos", "cuda")),
    Step("operators-compared", _operators_compared, each_visit=True),
    Step("bench-compile", _bench),
)
