"""Owns: host time per operator, the device against its target used natively.

Here are the command line, the order of measurement and the table; `_dispatch_cases` says what is
measured and what the goals are, `_slices` how.

    ./dev bench dispatch [--quick] [--json FILE] [--device flagos] [--native cpu]
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import platform
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _import_time
import torch
from _dispatch_cases import CASES, Case, Goal
from _native_process import NativeProcess, RemoteSide, local_side
from _slices import Comparison, Side, add_pairs, calls_per_slice

SHARED = Path(__file__).parents[2] / "torch-fl-cuda" / "bench"
sys.path.append(str(SHARED))
from _environment import cpu_model  # noqa: E402

sys.path.remove(str(SHARED))  # beside cuda.py nobody would find NVIDIA's package `cuda`

ROUNDS = 8
"""Each case is measured so many times, spread over the run: a burst of load elsewhere on the
machine then meets a part of every case and not the whole of one."""
MOST_CALLS = 5000
MOST_QUEUED = 500
"""Kernels in one slice of an asynchronous device; a full queue would block the host."""
BIAS_CASES = ("add", "view")
"""Measured natively against themselves too: what the method itself shows as a difference."""


@dataclass
class Row:
    """One line of the table."""

    name: str
    tensors: int | None
    goal: Goal
    comparison: Comparison

    @property
    def verdict(self) -> str:
        """Whether the goal is met."""
        met = self.goal.met(self.comparison.difference_ns, self.comparison.ratio)
        return {None: "-", True: "ok", False: "over"}[met]

    def to_json(self) -> dict[str, Any]:
        """All figures, unrounded."""
        return {
            "name": self.name,
            "tensor_arguments": self.tensors,
            "native_ns": self.comparison.first_ns,
            "device_ns": self.comparison.second_ns,
            "difference_ns": self.comparison.difference_ns,
            "difference_error_ns": self.comparison.error_ns,
            "ratio": self.comparison.ratio,
            "goal_ns": self.goal.nanoseconds,
            "goal_ratio": self.goal.ratio,
            "verdict": self.verdict,
            "pairs": len(self.comparison.first),
        }

    def __str__(self) -> str:
        figures = self.comparison
        tensors = "" if self.tensors is None else str(self.tensors)
        return (
            f"{self.name:<26}{figures.first_ns:>12.0f}{figures.second_ns:>12.0f}"
            f"{figures.difference_ns:>+10.0f}{figures.error_ns:>6.0f}{figures.ratio:>8.3f}"
            f"{tensors:>9}{self.goal!s:>10}  {self.verdict}"
        )


class Measurement:
    """One case: both sides, their slices, and what they have shown so far."""

    def __init__(self, row: Row, case: Case, first: Side, second: Side, most: int) -> None:
        self.row = row
        self._case = case
        self._first = first
        self._second = second
        with torch.set_grad_enabled(case.grad):
            calls_per_slice(second, most)  # warms it
            self._calls = calls_per_slice(first, most)

    def add(self, pairs: int, rng: random.Random) -> None:
        """Measure some more."""
        with torch.set_grad_enabled(self._case.grad):
            add_pairs(self.row.comparison, self._first, self._second, self._calls, pairs, rng)


def _measurements(
    device: torch.device, native: torch.device, remote: NativeProcess | None
) -> list[Measurement]:
    found = []
    for case in CASES.values():
        most = MOST_CALLS if native.type == "cpu" else max(1, MOST_QUEUED // case.launches)
        first: Side = (
            local_side(case.name, native)
            if remote is None or not case.backward
            else (RemoteSide(remote, case.name))
        )
        row = Row(case.name, case.tensors, case.goal, Comparison())
        found.append(Measurement(row, case, first, local_side(case.name, device), most))
        if case.name in BIAS_CASES:
            row = Row(f"bias: {case.name}", case.tensors, Goal(), Comparison())
            one, other = local_side(case.name, native), local_side(case.name, native)
            found.append(Measurement(row, case, one, other, most))
    return found


def _environment(device: torch.device, native: torch.device) -> dict[str, Any]:
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": platform.machine(),
        "cpu": cpu_model(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": str(device),
        "native": str(native),
    }


def _imports(module: str, pairs: int, rng: random.Random) -> Row:
    """Measures and prints what importing costs."""
    found = _import_time.measure(module, pairs, rng)
    row = Row(f"import {module}", None, Goal(nanoseconds=_import_time.GOAL_MS * 1e6), found)
    print(
        f"{row.name} above import torch: {found.difference_ns / 1e6:.0f} "
        f"+- {found.error_ns / 1e6:.0f} ms of {found.first_ns / 1e6:.0f} ms, "
        f"goal {_import_time.GOAL_MS:.0f} ms: {row.verdict}"
    )
    return row


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="flagos")
    parser.add_argument("--native", default="cpu", help="the device's target, used natively")
    parser.add_argument("--quick", action="store_true", help="fewer slices: figures +- 10 ns")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument(
        "--imports", type=int, metavar="N", help="pairs of imports, 20 or 10; 0 leaves them out"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the order of the slices")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a goal is missed")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write the JSON; returns the exit status."""
    options = _parser().parse_args(arguments)
    if options.device.partition(":")[0] == "flagos":
        import torch_fl  # noqa: F401  (importing it makes the device)
    device, native = torch.device(options.device), torch.device(options.native)
    rng = random.Random(options.seed)
    torch.set_num_threads(1)
    gc.disable()
    remote = NativeProcess(native) if native.type != "cpu" else None
    try:
        measurements = _measurements(device, native, remote)
        pairs = 8 if options.quick else 50
        for _ in range(ROUNDS):
            for measurement in rng.sample(measurements, len(measurements)):
                measurement.add(pairs, rng)
    finally:
        if remote is not None:
            remote.close()
    rows = [measurement.row for measurement in measurements]
    imports = options.imports
    if imports is None:
        imports = 10 if options.quick else 20

    environment = _environment(device, native)
    print(", ".join(f"{name} {value}" for name, value in environment.items()))
    print(
        f"{'ns per call, 1 thread':<26}{native!s:>12}{device!s:>12}{'diff':>10}{'+-':>6}"
        f"{'ratio':>8}{'tensors':>9}{'goal':>10}  verdict"
    )
    print(*rows, sep="\n")
    if imports:
        rows.append(_imports("torch_fl" if device.type == "flagos" else "torch", imports, rng))
    missed = [row.name for row in rows if row.verdict == "over"]
    print(f"{len(missed)} goals missed" + (f": {', '.join(missed)}" if missed else ""))
    if options.json:
        data = {"environment": environment, "rows": [row.to_json() for row in rows]}
        options.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 1 if options.strict and missed else 0


if __name__ == "__main__":
    sys.exit(main())
