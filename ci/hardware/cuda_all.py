"""Owns: everything that is shown on an NVIDIA GPU, in an order that fits into short loans of one.

    python ci/hardware/cuda_all.py OUTPUT_FOLDER PART [--seconds N] [--wheel FILE]

A part is one visit: `checks` (tests, kernels, databases, programs), `figures` (the benchmarks of
eager work), `compiled` (the compiler's graphs and benchmarks). Each builds and installs first; with
`--wheel`, a core built on such a machine before is installed instead. Steps that do not disturb
each other run side by side; figures are taken alone. What an earlier visit finished is passed by,
and what it began goes on, if its OUTPUT_FOLDER is given again. A built core is left there.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import cuda_core
from cuda_core import BUILD, CORE, PYTHON, ROOT

HERE = Path(__file__).parent
CORE_STEPS, PLUGIN_STEPS, COMPILE_STEPS = ("cuda_core.py", "cuda_plugin.py", "cuda_compile.py")

Step = tuple[str, str]  # a script of this folder and its step

PARTS: dict[str, tuple[tuple[Step, ...], ...]] = {
    "checks": (
        tuple((PLUGIN_STEPS, name) for name in ("flagos", "native", "again", "third")),
        ((PLUGIN_STEPS, "compared"),),
        (*((PLUGIN_STEPS, name) for name in ("tests", "kernels", "programs")),),
    ),
    "figures": (((PLUGIN_STEPS, "bench"),),),
    "compiled": (
        ((COMPILE_STEPS, "smoke-flagos"), (COMPILE_STEPS, "smoke-cuda")),
        ((COMPILE_STEPS, "graphs"),),
        ((COMPILE_STEPS, "bench-compile"),),
    ),
}
"""Groups one after the other; the steps of a group side by side."""


def install(output: Path, wheel: Path | None) -> int:
    """The core and the plugin, in an environment of their own; 0 where both are there."""
    if wheel is None:
        status = cuda_core.record(output, {"build": cuda_core.build})
        if status == 0:
            _keep_wheel(output)
    else:
        cuda_core.make_environment()
        options = ("--no-deps", "--no-index", "--force-reinstall")
        status, text = cuda_core.run(PYTHON, "-m", "pip", "install", *options, str(wheel))
        print(text[-500:])
    return status or _wait([_started(output, (PLUGIN_STEPS, "plugin"))], time.monotonic() + 120)


def _keep_wheel(output: Path) -> None:
    options = (
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        f"--config-settings=build-dir={BUILD}",
    )
    cuda_core.run(PYTHON, "-m", "pip", "wheel", *options, "-w", str(output), str(CORE), timeout=120)


def _started(output: Path, step: Step) -> subprocess.Popen[bytes]:
    script, name = step
    log = (output / f"{name}.log").open("wb")
    command = [sys.executable, str(HERE / script), str(output), name]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )


def _wait(steps: list[subprocess.Popen[bytes]], deadline: float) -> int:
    """The worst exit status. A step that still runs at the deadline is ended with all that it
    started; what it has written stays."""
    worst = 0
    for step in steps:
        try:
            worst = max(worst, step.wait(max(1.0, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            os.killpg(step.pid, signal.SIGTERM)
            worst = max(worst, 1)
    return worst


def _said(output: Path, name: str) -> str:
    file = output / f"{name}.json"
    if not file.exists():
        return f"{name}: not finished"
    found = json.loads(file.read_text(encoding="utf-8"))
    return f"{name}: status {found['status']} after {found.get('seconds')} s"


def main() -> int:
    """0 where every step of the part has succeeded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--seconds", type=float, default=570, help="of this visit (570)")
    parser.add_argument("--wheel", type=Path, help="a core that was built here before")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    os.environ[cuda_core.DEADLINE] = str(deadline)
    output = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    if install(output, options.wheel):
        print("the core or the plugin could not be installed")
        return 1
    worst = 0
    for group in PARTS[options.part]:
        worst = max(worst, _wait([_started(output, step) for step in group], deadline))
        print(*(_said(output, name) for _, name in group), sep="\n", flush=True)
    return worst


if __name__ == "__main__":
    sys.exit(main())
