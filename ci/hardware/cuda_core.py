"""Owns: the steps of the core alone on a machine with an NVIDIA GPU: unit tests and a glance at the
databases with the GPU hidden, as on a machine without one; a first look at the delegating runtime,
and at FlagGems' kernels as routes (where flag_gems is installed).
"""

from __future__ import annotations

import json

from cuda_delegate import DELEGATE, FLAGGEMS
from steps import PYTHON, ROOT, Job, Step

HIDDEN = {"CUDA_VISIBLE_DEVICES": ""}


def _unit(job: Job) -> int:
    options = ["-q", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-m", "not slow"]
    options += ["-n", "8", "-p", "no:cacheprovider"]
    return job.run(PYTHON, "-m", "pytest", *options, "tests", variables=HIDDEN)


def _op_db(job: Job) -> int:
    return job.run(
        PYTHON, "-m", "torch_fl.testing", "--tier", "ci", "--workers", "8", variables=HIDDEN
    )


def _delegate(job: Job) -> int:
    return _checked(job, DELEGATE)


def _flaggems(job: Job) -> int:
    return _checked(job, FLAGGEMS)


def _checked(job: Job, program: str) -> int:
    """Runs a program that says of each of its checks whether it held."""
    status = job.run(PYTHON, "-c", program, most=400)
    text = job.log().read_text(encoding="utf-8", errors="replace")
    results = [line for line in text.splitlines() if line.startswith("RESULT ")]
    if status != 0 or not results:
        return status or 1
    return int(not all(json.loads(results[-1].removeprefix("RESULT ")).values()))


STEPS = (
    Step("unit", _unit),
    Step("op_db", _op_db),
    Step("delegate", _delegate),
    Step("flaggems", _flaggems),
)
