"""Owns: the measurement of what importing the plugin costs on top of importing PyTorch.

Fresh interpreters in pairs, one importing PyTorch alone (its autoload of
backends off), one importing the plugin, in alternating order.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys

from _slices import Comparison

GOAL_MS = 150.0

_PROGRAM = """
import time
start = time.perf_counter()
import {module}
import torch
print(time.perf_counter() - start)
"""


def _import_seconds(module: str) -> float:
    environment = dict(os.environ)
    if module == "torch":
        environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    finished = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(module=module)],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return float(finished.stdout.split()[-1])


def measure(module: str, pairs: int, rng: random.Random) -> Comparison:
    """Import times of ``torch`` (first) and of ``module`` with ``torch`` (second)."""
    comparison = Comparison()
    _import_seconds(module)  # the first start fills the page cache and writes the bytecode
    for _ in range(pairs):
        seconds = {}
        for name in rng.sample(["first", "second"], 2):
            seconds[name] = _import_seconds("torch" if name == "first" else module)
        comparison.first.append(seconds["first"] * 1e9)
        comparison.second.append(seconds["second"] * 1e9)
    return comparison
