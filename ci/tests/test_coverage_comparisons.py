"""Owns: tests of the sections on comparisons with the device underneath and on programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ci.dev import coverage
from ci.dev.layout import Layout

HEAD = {"format": 1, "plugin": "other", "kind": "hardware", "torch": "2.13.0+x", "native": "xyz"}
WHERE = {
    "date": "2026-01-02",
    "plugin_version": "1.2",
    "python": "3.12.3",
    "machine": "x86_64",
    "device_name": "Accelerator 1",
}
SUITE = {
    **WHERE,
    "tier": "ci",
    "native_runs": 2,
    "native": 2000,
    "passed": 1999,
    "equal": 1900,
    "varying": 90,
    "failed": 1,
    "unequal": 9,
    "failed_cases": ["add forward torch.float32 sample 7"],
    "unequal_cases": ["mul grad sample 1", "mul grad sample 2", "mul out a|b"],
}
PROGRAMS = {
    **WHERE,
    "outcomes": {"equal": 1140, "close": 1},
    "named": {"losses.ctc": {"outcome": "close", "as_expected": False, "detail": "by 1e-7"}},
}


def _page(root: Path, **files: dict[str, Any]) -> str:
    folder = root / "evidence" / "other"
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / f"{name}.json").write_text(json.dumps({**HEAD, **data}))
    return coverage.page(Layout(root))


def test_a_backend_against_its_native_device(tmp_path: Path) -> None:
    text = _page(tmp_path, a={"against": {"op_db": SUITE}}, rows={"rows": {}})
    assert "## other against xyz itself, torch 2.13.0+x (hardware)" in text
    assert "on Accelerator 1, x86_64, Python 3.12.3, in `evidence/other/a.json`." in text
    assert (
        "| op_db | ci | 2026-01-02 | 1.2 | 2 | 2,000 | 1,999 | 99.950% | 1,900 | 90 | 9 |" in text
    )
    assert "| op_db | add | forward | torch.float32 sample 7 |" in text
    assert "| op_db | mul | grad | sample 1, sample 2 |" in text
    assert "| op_db | mul | out | a\\|b |" in text
    assert "| op_db |  |  | 6 more |" in text
    assert "A few native runs do not show everything" in text
    assert "No evidence" not in text
    assert text.count("\n## ") == 1, "other kinds of files have no section"


def test_where_nothing_differs(tmp_path: Path) -> None:
    fine = {"failed": 0, "unequal": 0, "failed_cases": [], "unequal_cases": []}
    text = _page(tmp_path, a={"against": {"op_db": {**SUITE, **fine, "device_name": ""}}})
    assert text.count("None.\n") == 2
    assert "A few native runs" not in text
    assert "Recorded on x86_64, Python" in text


def test_whole_programs(tmp_path: Path) -> None:
    text = _page(tmp_path, p={"programs": PROGRAMS})
    assert "## Whole programs: other, torch 2.13.0+x (hardware), against xyz itself" in text
    assert "Python 3.12.3, 2026-01-02, in `evidence/other/p.json`." in text
    assert "| version | programs | equal | close |" in text
    assert "| 1.2 | 1141 | 1140 | 1 |" in text
    assert "| `losses.ctc` | close | no | by 1e-7 |" in text


def test_programs_that_are_all_equal(tmp_path: Path) -> None:
    text = _page(tmp_path, p={"programs": {**PROGRAMS, "named": {}}})
    assert text.endswith("None.\n")
