"""Owns: the tests of the page of compiled models: it says what rows and evidence say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ci.dev import performance_compile as pages
from ci.dev.cli import ROOT
from ci.dev.errors import UserError
from ci.dev.layout import Layout


def _figure(name: str, value: float, verdict: str) -> dict[str, Any]:
    return {"figure": name, "value": value, "verdict": verdict, "interval": [value, value + 0.1]}


MEASURED = {
    "state": "complete",
    "verdict": "over",
    "unit": "ms per step",
    "date": "2026-01-02",
    "environment": {"cpu": "X", "torch": "2.13.0"},
    "pairs": [{}] * 5,
    "native": {"median": 10.0},
    "flagos": {"median": 10.6},
    "agreement": "bit for bit",
    "figures": [
        _figure("run time", 1.06, "over"),
        _figure("compile time", 1.01, "-"),
        _figure("gain", 1.5, "-"),
        _figure("boundary", 1.2, "ok"),
    ],
}


def _layout(tmp_path: Path, rows: dict[str, Any] | None = None, *, quick: bool = False) -> Layout:
    target = tmp_path / pages.ROWS
    target.parent.mkdir(parents=True)
    shutil.copy(ROOT / pages.ROWS, target)
    if rows is not None:
        evidence = tmp_path / pages.FOLDER / "host.json"
        evidence.parent.mkdir(parents=True)
        evidence.write_text(json.dumps({"quick": quick, "rows": rows}), encoding="utf-8")
    return Layout(tmp_path)


def test_without_evidence_everything_is_untested(tmp_path: Path) -> None:
    page = pages.page(_layout(tmp_path))
    assert page.count("nothing has been recorded yet") == len(pages.TARGETS)
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) == 6 + 3 * 6  # the host has one mode, a GPU three
    assert all(line.endswith("| untested |") for line in rows)


def test_what_is_measured_and_why_it_misses(tmp_path: Path) -> None:
    failed = {"state": "failed", "error": "it died\nat length"}
    rows = {"mlp, default": {**MEASURED, "reason": "it is small"}, "conv, default": failed}
    page = pages.page(_layout(tmp_path, rows))
    assert (
        "| `mlp, default` | 1.060 [1.060, 1.160] | 1.010 [1.010, 1.110] | 1.500 [1.500, 1.600] | "
        "1.200 [1.200, 1.300] | 10 | 10.6 | ms per step | bit for bit | 5 | over | host |" in page
    )
    assert "- `mlp, default` (run time): it is small\n" in page
    assert "- `conv, default` is failed: it died\n" in page
    assert "- `mlp, default`: cpu X, torch 2.13.0 (2026-01-02)\n" in page
    assert "| `flex, default` | –" in page


def test_rows_that_were_compiled_together_are_named(tmp_path: Path) -> None:
    pairs = [{}, {"built_with": 1}, {"built_with": 6}]
    rows = {f"{name}, default": {**MEASURED, "pairs": pairs} for name in ("mlp", "conv")}
    page = pages.page(_layout(tmp_path, {**rows, "flex, default": MEASURED}))
    assert "- 6 at a time: `mlp, default`; `conv, default`\n" in page
    assert "1 at a time" not in page


def test_a_quick_run_is_no_evidence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no evidence"):
        pages.page(_layout(tmp_path, {"mlp, default": MEASURED}, quick=True))


def test_the_page_in_docs_is_that_of_the_evidence() -> None:
    page = (ROOT / pages.PAGE).read_text(encoding="utf-8")
    assert page == pages.page(Layout(ROOT)), "run ./dev docs"
