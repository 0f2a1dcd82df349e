"""Owns: the rows of `./dev bench compile` as data: models, modes, sizes, goals.

Nothing but the standard library is imported when this file is loaded: the page
docs/performance-compile.md is made from it, on machines without PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from _rows import Goal, Row

TUNED: Final = "max-autotune"
"""Kernels are chosen by their time on the device, so one side compiles after the other, each with
half of the machine's processes. In other modes rows compile at the same time, both sides of all of
them, and share the processes."""

MODES: Final = ("default", "reduce-overhead", TUNED)
"""Those that take longest last: a run that is out of time leaves them for the next."""

MODELS: Final[dict[str, tuple[str, ...]]] = {
    "mlp": ("mlp",),
    "conv": ("conv",),
    "transformer": ("transformer",),
    "qwen3": ("qwen3-train", "qwen3-decode"),
    "flex": ("flex",),
}
"""The rows of each model."""

ABOUT: Final = {
    "mlp": "8 linear layers with GELU and a mean squared error, forward and backward",
    "conv": "a residual network (ResNet-50 on an accelerator), forward and backward",
    "transformer": "blocks of attention, layer norm and GELU, forward and backward",
    "qwen3-train": "a model shaped as Qwen3 with its loss, forward and backward",
    "qwen3-decode": "its greedy decoding with a static cache, one token after the other",
    "flex": "the transformer's blocks with FlexAttention, causal with a bias by distance (forward "
    "alone on the host: Inductor has no backward of it for CPUs)",
}

RUN_TIME, COMPILE_TIME, GAIN, BOUNDARY = "run time", "compile time", "gain", "boundary"

_BLOCKS: Final = {"layers": 2, "hidden": 256, "heads": 4, "inner": 1024, "batch": 2, "length": 128}
_LARGE_BLOCKS: Final = {
    **{"layers": 4, "hidden": 2048, "heads": 16, "inner": 8192, "batch": 4, "length": 2048}
}
_QWEN: Final = {
    **{"layers": 4, "hidden": 256, "heads": 4, "kv_heads": 2, "head_dim": 64},
    **{"intermediate": 768, "vocabulary": 4096},
}
_LARGE_QWEN: Final = {
    **{"layers": 28, "hidden": 1024, "heads": 16, "kv_heads": 8, "head_dim": 128},
    **{"intermediate": 3072, "vocabulary": 151936},
}
_WIDE: Final = {"dtype": "float32", "train": True, "warm": 3, "turns": 8, "steps": 10}
# Short turns, many of them: what disturbs a machine for a tenth of a second then meets few.
_HALF: Final = {"dtype": "bfloat16", "train": True, "warm": 6, "turns": 16, "steps": 5}

HOST_SIZES: Final[dict[str, dict[str, Any]]] = {
    "mlp": {**_WIDE, "layers": 8, "width": 256, "batch": 64, "steps": 30},
    "conv": {**_WIDE, "blocks": [1, 1, 1, 1], "width": 16, "batch": 4, "image": 64, "classes": 10},
    "transformer": {**_WIDE, **_BLOCKS},
    "qwen3-train": {**_WIDE, **_QWEN, "batch": 1, "length": 64},
    "qwen3-decode": {**_WIDE, **_QWEN, "train": False, "prompt": 8, "tokens": 32, "steps": 4},
    "flex": {**_WIDE, **_BLOCKS, "train": False},
}
LARGE_SIZES: Final[dict[str, dict[str, Any]]] = {
    "mlp": {**_HALF, "layers": 8, "width": 1024, "batch": 512, "steps": 50},
    "conv": {**_HALF, "blocks": [3, 4, 6, 3], "width": 64, "batch": 64, "image": 224}
    | {"classes": 1000},
    "transformer": {**_HALF, **_LARGE_BLOCKS},
    "qwen3-train": {**_HALF, **_LARGE_QWEN, "batch": 4, "length": 1024, "steps": 2},
    "qwen3-decode": {**_HALF, **_LARGE_QWEN, "train": False, "prompt": 32, "tokens": 64}
    | {"turns": 8, "steps": 1},
    "flex": {**_HALF, **_LARGE_BLOCKS},
}
LARGE_PAIR_S: Final[dict[str, float]] = {
    **{"mlp": 50.0, "conv": 120.0, "transformer": 70.0},
    **{"qwen3-train": 150.0, "qwen3-decode": 100.0, "flex": 80.0},
}
"""What a pair is taken to need of which none has been timed: it compiles on both sides."""
TUNING: Final = 1.4
"""How many times as long it takes where kernels are tuned."""
HOST_PAIR_S: Final = 60.0
_QUICK: Final = {"warm": 1, "turns": 2, "steps": 2}


def name_of(model_row: str, mode: str) -> str:
    """The name of a row in results, such as "mlp, default"."""
    return f"{model_row}, {mode}"


def rows(models: tuple[str, ...], modes: tuple[str, ...], target: str) -> list[Row]:
    """The rows of some models and modes for a target, which decides their sizes and goals."""
    from _rows import Row

    on_host = target == "cpu"
    sizes = HOST_SIZES if on_host else LARGE_SIZES
    return [
        Row(
            name=name_of(row, mode),
            about=ABOUT[row],
            kind="steps",
            goals=goals(target),
            size={"model": row, "mode": mode, **sizes[row]},
            quick={"model": row, "mode": mode, **HOST_SIZES[row], **_QUICK},
            limit_s=900 if on_host else 240,
            pair_s=HOST_PAIR_S if on_host else _large_pair_s(row, mode),
            together=not on_host and mode != TUNED,
            unit="ms per token" if row == "qwen3-decode" else "ms per step",
            tolerance=2e-2,
        )
        for mode in modes
        for model in models
        for row in MODELS[model]
    ]


def _large_pair_s(row: str, mode: str) -> float:
    return LARGE_PAIR_S[row] * (TUNING if mode == TUNED else 1.0)


def goals(target: str) -> tuple[Goal, ...]:
    """What the figures have to reach."""
    from _rows import Goal

    on_host = target == "cpu"
    return (
        Goal(RUN_TIME, at_most=1.05 if on_host else 1.02),
        Goal(COMPILE_TIME, at_most=None if on_host else 1.05),
        Goal(GAIN),
        Goal(BOUNDARY, at_most=3.0 if on_host else None, unit="µs"),
    )
