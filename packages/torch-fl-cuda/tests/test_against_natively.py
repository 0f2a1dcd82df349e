"""Owns: tests of what is counted where a native run did not come to the end of a unit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch_fl.testing import side_by_side
from torch_fl.testing.harness.results import UnitResult

GOOD = UnitResult("add", "forward", suite="op_db", fingerprints={"one": "+a", "two": "+b"})
LOST = replace(GOOD, device_lost=True, fingerprints={"one": "+a"})
CRASHED = replace(GOOD, status="crash", failed=1, fingerprints={})


def _score(*natives: UnitResult) -> side_by_side.Score:
    header: Any = None  # what is compared belongs together here
    runs = side_by_side.Runs(
        header, {GOOD.key: GOOD}, [(header, {GOOD.key: unit}) for unit in natives]
    )
    return side_by_side.compare(runs)["op_db"]


def test_a_unit_that_crashed_natively_is_counted_and_named() -> None:
    assert (_score(GOOD, GOOD).native, _score(GOOD, GOOD).lost) == (2, [])
    for natives in ((CRASHED, GOOD), (GOOD, CRASHED)):
        score = _score(*natives)
        assert (score.native, score.lost) == (0, ["add forward: crash"])
    score = _score(LOST, GOOD)
    assert (score.native, score.equal, score.lost) == (1, 1, ["add forward: device lost"])
    timed_out = replace(CRASHED, status="timeout")
    said = side_by_side.lines({"op_db": _score(CRASHED, timed_out)})
    assert "op_db: lost natively: add forward: crash, timeout" in said
