"""Owns: the tests of the page of speed and memory: it says what rows and evidence say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ci.dev import performance
from ci.dev.cli import ROOT
from ci.dev.errors import UserError
from ci.dev.layout import Layout

SIDE = {"median": 100.0, "start_s": 4.0, "peak_bytes": 2**30, "result": 7.5}
ENVIRONMENT = {"device": "NVIDIA X", "driver": "580.1", "torch": "2.11.0+cu130"}


def _figure(name: str, value: float, verdict: str, **more: Any) -> dict[str, Any]:
    base = {"figure": name, "value": value, "unit": "×", "goal": "≥ 0.99 ×", "plugin_today": "–"}
    return {**base, "verdict": verdict, **more}


STEPS = {
    "state": "complete",
    "verdict": "over",
    "unit": "ms per step",
    "date": "2026-01-02",
    "environment": ENVIRONMENT,
    "ran": "transformers 9",
    "pairs": [{}] * 5,
    "native": SIDE,
    "flagos": {**SIDE, "median": 105.26},
    "agreement": "bit for bit",
    "figures": [_figure("throughput", 0.95, "over", interval=[0.94, 0.96])],
}
COUNTS = {
    "state": "partial",
    "verdict": "ok",
    "unit": "processes",
    "date": "2026-01-03",
    "environment": ENVIRONMENT,
    "counts": {"processes": 32, "aborts": 0},
    "figures": [_figure("aborts", 0, "ok", unit="", goal="0")],
}
OPERATORS = {
    **{key: STEPS[key] for key in ("state", "date", "environment", "pairs")},
    "verdict": "ok",
    "unit": "ns per call",
    "figures": [_figure("worst", 1.05, "ok", goal="≤ 1.10 ×")],
    "operators": [
        {"name": "add", "native": 6200.4, "flagos": 6300, "ratio": 1.016, "interval": [1.0, 1.1]}
    ],
}


def _layout(tmp_path: Path, rows: dict[str, Any] | None = None, **head: Any) -> Layout:
    target = tmp_path / performance.ROWS
    target.parent.mkdir(parents=True)
    shutil.copy(ROOT / performance.ROWS, target)
    if rows is not None:
        evidence = tmp_path / performance.EVIDENCE
        evidence.parent.mkdir(parents=True)
        data = {"format": 1, "kind": "hardware", "quick": False, "rows": rows, **head}
        evidence.write_text(json.dumps(data), encoding="utf-8")
    return Layout(tmp_path)


def test_without_evidence_everything_is_untested(tmp_path: Path) -> None:
    page = performance.page(_layout(tmp_path))
    assert "nothing has been measured on hardware yet" in page
    assert "./dev bench cuda --json evidence/cuda/performance.json" in page
    goals = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(goals) > 10
    assert all(line.endswith("| – | untested |") for line in goals)
    assert "| `qwen3-train` | peak memory | – | ≤ 1.01 × | 1.63 (7.0 → 11.4 GiB) |" in page
    assert "## Where" not in page


def test_measured_rows_and_the_others(tmp_path: Path) -> None:
    rows = {"lstm-train": STEPS, "starts": COUNTS, "dispatch": OPERATORS}
    page = performance.page(_layout(tmp_path, rows))
    assert "nothing has been measured" not in page
    assert (
        "| `lstm-train` | throughput | 0.950 [0.940, 0.960] | ≥ 0.99 × | – | over | hardware |"
        in page
    )
    assert "| `starts` | aborts | 0 | 0 | – | ok | hardware, partial |" in page
    assert "| `qwen3-train` | throughput | – |" in page
    assert (
        "| `lstm-train` | 100 | 105.3 | ms per step | 1.000 / 1.000 | 4.0 / 4.0 | bit for bit | 5 "
        "| transformers 9 | 2026-01-02 |" in page
    )
    assert "32 processes, 0 aborts" in page
    assert "| add | 6200 | 6300 | 1.016 [1.000, 1.100] |" in page
    assert "- `lstm-train`, `dispatch`: device NVIDIA X, driver 580.1" in page


def test_why_rows_miss(tmp_path: Path) -> None:
    profile = {
        side: {"steps": 5, "wall_us": 110.0, "busy_us": 90.0, "gap_us": 20.0, "launches": 4}
        for side in ("native", "flagos")
    }
    entry = {"name": "aten::mm", "native": [10.0, 1.0], "flagos": [14.0, 1.0]}
    parts = {"host": [entry], "kernels": []}
    rows = {
        "lstm-train": {**STEPS, "reason": "the weights are copied", "profile": profile | parts},
        "mlp-train": {**STEPS, "verdict": "wrong"},
        "graph-replay": {"state": "failed", "error": "it died\nat length"},
    }
    page = performance.page(_layout(tmp_path, rows))
    assert "- `lstm-train`: the weights are copied\n" in page
    assert "native 110 µs per step (90 µs busy, 20 µs gaps)" in page
    assert "`aten::mm` 10 / 14" in page
    assert "- `mlp-train`: the reason has not been found yet\n" in page
    assert "- `graph-replay` is failed: it died\n" in page


@pytest.mark.parametrize("head", [{"kind": "host"}, {"quick": True}])
def test_trials_are_no_evidence(tmp_path: Path, head: dict[str, Any]) -> None:
    layout = _layout(tmp_path, {"lstm-train": STEPS}, **head)
    with pytest.raises(UserError, match="no evidence"):
        performance.page(layout)


def test_a_checkout_without_the_rows(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="incomplete"):
        performance.page(Layout(tmp_path))


def test_the_page_in_docs_is_that_of_the_evidence() -> None:
    layout = Layout(ROOT)
    page = (ROOT / performance.PAGE).read_text(encoding="utf-8")
    assert page == performance.page(layout), "run ./dev docs"
