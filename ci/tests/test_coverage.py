"""Owns: the tests of the page of operator coverage: it says what the evidence says."""

from __future__ import annotations

import json
from pathlib import Path

from ci.dev import coverage
from ci.dev.cli import ROOT
from ci.dev.layout import Layout

RUN = {
    "date": "2026-01-02",
    "tier": "ci",
    "plugin_version": "1.2",
    "python": "3.11.7",
    "machine": "x86_64",
    "device": "flagos:0",
    "compared": 2,
    "empty": 1,
    "passes": {"forward": "1000 1 0", "out": "999 0 2"},
    "entries": {"add": "1000 0 0", "mul": "999 1 2", "none": "0 0 0"},
}


def test_the_page_shows_runs_differences_and_entries(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "evidence" / "other").mkdir(parents=True)
    data = {
        "format": 1,
        "plugin": "other",
        "kind": "emulated",
        "torch": "2.13.0",
        "runs": {"plain": {"op_db": RUN}},
    }
    (tmp_path / "evidence" / "other" / "2.13.0-emulated.json").write_text(json.dumps(data))
    (tmp_path / "evidence" / "other" / "else.json").write_text(json.dumps({"rows": []}))
    text = coverage.write_page(layout).read_text(encoding="utf-8")
    assert "## other, torch 2.13.0 (emulated)" in text
    row = "| op_db | plain | ci | 2026-01-02 | 1.2 | 2 | 2,002 | 1,999 | 1 | 2 | 99.850% |"
    assert row in text
    assert "| op_db | plain | mul | 999 | 1 | 2 |" in text
    assert "`add` 1000, `mul` 999 of 1002." in text
    assert "none" not in text


def test_without_evidence_the_page_says_so(tmp_path: Path) -> None:
    assert "No evidence is recorded." in coverage.page(Layout(tmp_path))


def test_the_page_in_docs_is_that_of_the_evidence() -> None:
    layout = Layout(ROOT)
    assert (ROOT / coverage.PAGE).read_text(encoding="utf-8") == coverage.page(layout)


def test_recorded_evidence_stays_small() -> None:
    for path in (ROOT / coverage.FOLDER).glob("*/*.json"):
        assert path.stat().st_size < 200_000, path
