"""Owns: the steps of torch-fl-cuda: its tests, what it launches, its programs and PyTorch's
databases against CUDA itself, and its benchmarks.

What a step keeps for itself in the folder of results (runs of the databases, outcomes of programs,
rows of benchmarks) goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from installation import PLUGIN
from steps import PYTHON, ROOT, Job, Step

SUITES = "op_db,module_db,optim_db,error_inputs"
LISTS, NATIVE_LISTS = "lists", "native-lists"
NATIVE_RUNS = ("native", "native-2", "native-3")
HARDWARE = PLUGIN / "tests/hardware"
KERNELS = HARDWARE / "test_same_kernels.py"
ON_CUDA = {"FLAGOS_PLUGIN": "cuda"}
"""By name: where it cannot be used, nothing else is looked at in its place. Not for pytest: tests
choose for themselves."""


def _pytest(job: Job, *words: str) -> int:
    options = ["-q", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "--tb", "short"]
    options += ["-p", "no:cacheprovider", "--disable-warnings"]
    options += ["--junitxml", str(job.output / f"{job.name}.xml")]
    return job.run(PYTHON, "-m", "pytest", *options, *words)


def _tests(job: Job) -> int:
    """By module, since what a module makes for its tests is costly; few at a time, since many wait
    for the GPU to be seen at work. Tests that need no GPU are run elsewhere."""
    words = ("-n", "4", "--dist", "loadscope", "--timeout", "240")
    return _pytest(job, *words, "--ignore", str(KERNELS), str(HARDWARE))


def _kernels(job: Job) -> int:
    """What both sides launch, in a process each."""
    return _pytest(job, "--timeout", "420", str(KERNELS))


def _programs(job: Job) -> int:
    words = ["--native", "cuda", "--json", str(job.output / "programs-outcome.json")]
    return job.run(PYTHON, "-m", "torch_fl.testing.programs", *words, variables=ON_CUDA)


def _suites(job: Job, device: str, suites: str = SUITES) -> int:
    """One run of PyTorch's databases, with fingerprints. What fails against the CPU is no failure
    of this step: natively some of it does too."""
    words = ["--device", device, "--suite", suites, "--configuration", "plain", "--fingerprints"]
    words += ["--workers", "4", "--out", str(job.output / f"{job.name}.jsonl"), "--resume"]
    status = job.run(PYTHON, "-m", "torch_fl.testing", *words, variables=ON_CUDA)
    return 0 if status == 1 else status


def against(job: Job, flagos: str, *natives: str, more: Sequence[str] = ()) -> int:
    """Of what passes in native runs, what passes in the one on flagos: names of runs."""
    ours, *theirs = (str(job.output / f"{name}.jsonl") for name in (flagos, *natives))
    words = ("--merge", ours, "--against", *theirs, *more)
    return job.run(PYTHON, "-m", "torch_fl.testing", *words)


def _compared(job: Job) -> int:
    """Several native runs: what varies there from run to run need not be equal here."""
    natives = [name for name in NATIVE_RUNS if (job.output / f"{name}.jsonl").exists()]
    return against(job, "flagos", *natives, more=("--record", str(job.output)))


def _lists_compared(job: Job) -> int:
    return against(job, LISTS, NATIVE_LISTS)


def _bench(job: Job) -> int:
    """The rows in turns; those that are not complete go on in the next visit."""
    words = ["--json", str(job.output / "performance.json")]
    words += ["--budget", f"{job.visit.left() - 10:.0f}"]
    return job.run(PYTHON, str(PLUGIN / "bench/cuda.py"), *words, variables=ON_CUDA)


STEPS = (
    Step("tests", _tests),
    Step("kernels", _kernels),
    Step("programs", _programs),
    Step("flagos", partial(_suites, device="flagos")),
    *(Step(name, partial(_suites, device="cuda")) for name in NATIVE_RUNS),
    Step("compared", _compared, each_visit=True),
    Step(LISTS, partial(_suites, device="flagos", suites="foreach_op_db")),
    Step(NATIVE_LISTS, partial(_suites, device="cuda", suites="foreach_op_db")),
    Step("lists-compared", _lists_compared, each_visit=True),
    Step("bench", _bench),
)
