"""Owns: the rows of the benchmark as data: what is measured, in which sizes, and the goals.

Nothing but the standard library is imported here: the page docs/performance.md is made from these
rows and from the recorded figures, on machines without PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["dispatch", "steps", "starts", "streams"]
Size = dict[str, Any]

THROUGHPUT = "throughput"
PEAK = "peak memory"


@dataclass(frozen=True)
class Goal:
    """What one figure of a row has to reach; with neither bound it is shown without a goal.

    `unit` is "×" for a ratio against native and empty for a count. `plugin_today` is the same
    figure of the comparable plugin, as it was when the goal was set.
    """

    figure: str
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "×"
    plugin_today: str = "–"

    def verdict(self, value: float) -> str:
        """`ok`, `over` (the goal is missed), or `-` without a goal."""
        if self.at_least is not None:
            return "ok" if value >= self.at_least else "over"
        if self.at_most is not None:
            return "ok" if value <= self.at_most else "over"
        return "-"

    def __str__(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:.2f} {self.unit}".strip()
        if self.at_most is not None:
            return f"≤ {self.at_most:.2f} {self.unit}".strip() if self.at_most else "0"
        return "–"


@dataclass(frozen=True)
class Row:
    """One row. `size` goes to what is measured; `quick` is a tiny one, to try the benchmark.

    `limit_s` bounds the row's time in one run; what is left then is measured by the next one. Of a
    row that is built with others it bounds the building and then the measuring.
    `pair_s` is what a pair of its processes is taken to need before one has been timed.
    `together`: both sides are built and warmed at the same time, and with other such rows; else one
    after the other, as is right where algorithms are chosen by their time on the device.
    `cores` is the number of processors that both sides have for themselves; 0: all of the machine.
    `one_process`: both sides are in one process, which has flagos, on the same parameters; for rows
    without a backward pass, which PyTorch has for one accelerator of a process alone.
    `enough` is the number of pairs that are enough, where that is fewer than for others: with both
    sides in one process little varies from one to the next; 0: it is not fewer.
    `tolerance` is how far the results of both sides may be apart, relatively; bit for bit at 0.
    """

    name: str
    about: str
    kind: Kind
    goals: tuple[Goal, ...]
    size: Size
    quick: Size
    limit_s: float
    unit: str = "ms per step"
    pair_s: float = 40.0
    together: bool = False
    cores: int = 0
    one_process: bool = False
    enough: int = 0
    tolerance: float = 0.0


CORES = 4
"""For a process whose work is given by one thread, and by another one in the backward pass."""

IN_ONE_PROCESS = 3
"""Runs of rows whose sides share one."""

_PEAK = Goal(PEAK, at_most=1.01)
_QWEN = {
    "layers": 28,
    "hidden": 1024,
    "heads": 16,
    "kv_heads": 8,
    "head_dim": 128,
    "intermediate": 3072,
    "vocabulary": 151936,
}
_TINY_QWEN = {
    "layers": 2,
    "hidden": 32,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 8,
    "intermediate": 48,
    "vocabulary": 96,
}
_TINY_TURNS = {"warm": 1, "turns": 2, "steps": 2}

# The most important first: a run that is out of time leaves the end for the next.
ROWS: tuple[Row, ...] = (
    Row(
        "dispatch",
        "host time per operator, the list of `./dev bench dispatch`",
        "dispatch",
        (
            Goal("geometric mean", at_most=1.03, plugin_today="about 1.5"),
            Goal("worst", at_most=1.10, plugin_today="2.3"),
        ),
        {"quick": True},
        {"quick": True},
        enough=IN_ONE_PROCESS,
        limit_s=300,
        unit="ns per call",
    ),
    Row(
        "qwen3-train",
        "training step shaped as Qwen3-0.6B: random weights, bf16, 4 × 1024 tokens, AdamW",
        "steps",
        (
            Goal(THROUGHPUT, at_least=0.99, plugin_today="0.63 (14 layers, 75 → 115 ms)"),
            Goal(PEAK, at_most=1.01, plugin_today="1.63 (7.0 → 11.4 GiB)"),
        ),
        {**_QWEN, "batch": 4, "length": 1024, "warm": 4, "turns": 16, "steps": 2},
        {**_TINY_QWEN, **_TINY_TURNS, "batch": 2, "length": 8},
        limit_s=300,
        tolerance=1e-2,
        cores=CORES,
        together=True,
    ),
    Row(
        "qwen3-decode",
        "its greedy decoding: batch 1, the last 16 of 128 tokens after a prompt of 32, static "
        "cache, not compiled; both sides in one process, on the same parameters",
        "steps",
        (
            Goal(
                THROUGHPUT,
                at_least=0.98,
                plugin_today="0.57 (dynamic cache, 0.97 → 1.7 s)",
            ),
            _PEAK,
        ),
        {**_QWEN, "prompt": 144, "tokens": 16, "warm": 1, "turns": 12, "steps": 1},
        {**_TINY_QWEN, **_TINY_TURNS, "prompt": 4, "tokens": 6},
        enough=IN_ONE_PROCESS,
        limit_s=300,
        unit="ms per token",
        cores=CORES,
        together=True,
        one_process=True,
    ),
    Row(
        "lstm-train",
        "nn.LSTM training step: 2 layers of 1024, 64 × 128 × 512, fp32 with TF32 as PyTorch's "
        "default has it, AdamW",
        "steps",
        (Goal(THROUGHPUT, at_least=0.98), _PEAK),
        {
            "layers": 2,
            "hidden": 1024,
            "batch": 64,
            "length": 128,
            "inputs": 512,
            "warm": 5,
            "turns": 16,
            "steps": 8,
        },
        {"layers": 2, "hidden": 8, "batch": 2, "length": 3, "inputs": 4, **_TINY_TURNS},
        limit_s=240,
        tolerance=1e-2,
        cores=CORES,
        together=True,
    ),
    Row(
        "graph-replay",
        "a training step captured and replayed 1,000 times; how far the parameters are then from "
        "those after as many steps without a graph, beyond native's own difference",
        "steps",
        (Goal("difference to eager", at_most=0, unit=""), Goal(THROUGHPUT)),
        {"layers": 8, "width": 256, "batch": 32, "warm": 3, "turns": 5, "steps": 200},
        {"layers": 2, "width": 8, "batch": 4, **_TINY_TURNS},
        limit_s=240,
        unit="ms per replay",
        tolerance=1e-5,
        cores=CORES,
        together=True,
    ),
    Row(
        "mlp-train",
        "training step of a small MLP, where the host's time is all there is: 8 layers of 256, "
        "batch 32, AdamW",
        "steps",
        (Goal(THROUGHPUT), Goal(PEAK)),
        {"layers": 8, "width": 256, "batch": 32, "warm": 20, "turns": 10, "steps": 100},
        {"layers": 2, "width": 8, "batch": 4, **_TINY_TURNS},
        limit_s=240,
        tolerance=1e-2,
        cores=CORES,
        together=True,
    ),
    Row(
        "resnet50-train",
        "ResNet-50 training step: 64 × 3 × 224 × 224, channels_last, fp16 autocast with "
        "GradScaler, SGD with momentum, cuDNN in benchmark mode",
        "steps",
        (Goal(THROUGHPUT, at_least=0.99), _PEAK),
        {
            "blocks": [3, 4, 6, 3],
            "width": 64,
            "batch": 64,
            "image": 224,
            "classes": 1000,
            "dtype": "float16",
            "warm": 5,
            "turns": 16,
            "steps": 6,
        },
        {
            "blocks": [1, 1, 1, 1],
            "width": 4,
            "batch": 2,
            "image": 32,
            "classes": 5,
            "dtype": "bfloat16",
            **_TINY_TURNS,
        },
        limit_s=240,
        tolerance=2e-2,
        cores=CORES,
    ),
    Row(
        "starts",
        "200 processes that start, run backward and exit, 16 at a time",
        "starts",
        (Goal("aborts", at_most=0, unit=""), Goal("wrong results", at_most=0, unit="")),
        {"processes": 200, "at_a_time": 16, "timeout": 120},
        {"processes": 4, "at_a_time": 2, "timeout": 60},
        limit_s=300,
        unit="processes",
    ),
    Row(
        "two-streams",
        "2 threads on 2 streams that compute, free, and hand each other memory, with canaries",
        "streams",
        (Goal("aborts", at_most=0, unit=""), Goal("wrong values", at_most=0, unit="")),
        {"seconds": 15.0, "control_seconds": 3.0, "largest": 1 << 20, "matrix": 256},
        {"seconds": 0.3, "control_seconds": 0.1, "largest": 1 << 10, "matrix": 16},
        limit_s=120,
        unit="checked values",
    ),
)

BY_NAME: dict[str, Row] = {row.name: row for row in ROWS}
