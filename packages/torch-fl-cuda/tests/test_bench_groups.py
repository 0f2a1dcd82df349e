"""Owns: tests of rows that are built at the same time: who is in a group, and what it leaves.

Small programs stand in for the processes that import PyTorch. They write down when they work.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

CHILD = """
import json, os, sys, time
spec = json.loads(sys.argv[1])
size = spec["size"]

def say(**answer):
    print(json.dumps(answer), flush=True)

def note(what):
    line = [spec["workload"], os.getpid(), spec["builders"], what, time.monotonic()]
    with open({log!r}, "a") as log:
        log.write(json.dumps(line) + "\\n")

note("start")
say(target="cpu", environment={{}}, start_s=0, import_s=0)
for line in sys.stdin:
    word = line.strip()
    note(word)
    if word == size.get("hangs"):
        time.sleep(60)
    if word == "build":
        time.sleep(size.get("build", 0.2))
        note("built")
        if size.get("fails") == spec["activate"]:
            say(**size["says"])
            continue
    end = dict(first=1, last=1, note="n", s=0, ms=1, peak_bytes=None, reports={{}})
    say(**end, native=end, device=end, equal=True, activated=spec["activate"])
    if word == "finish":
        note("end")
        break
"""


class Group:
    """Rows, and what their processes have written down."""

    def __init__(self, bench: Any, log: Path, plan: Any) -> None:
        self._bench, self._log, self.plan = bench, log, plan
        self.results = bench.results.Results(None, "cpu", "flagos", quick=True)
        self.chosen: list[list[str]] = []

    def row(self, name: str, *, together: bool = True, **size: Any) -> Any:
        row = self._bench.rows.BY_NAME["mlp-train"]
        return replace(row, name=name, together=together, quick={"turns": 2, **size})

    def run(self, *rows: Any, seconds: float = 60) -> list[str]:
        @contextlib.contextmanager
        def together(taken: Any, plan: Any) -> Iterator[Any]:
            with self._bench.training.together(taken, plan, figures=lambda *_: {}) as measures:
                self.chosen.append([row.name for row, _ in taken[: len(measures)]])
                yield measures

        def alone(row: Any, *more: Any) -> None:
            self.chosen.append([row.name])
            self._bench.training.measure(row, *more, figures=lambda *_: {})

        plan = replace(self.plan, deadline=time.monotonic() + seconds)
        missing: list[str] = self._bench.rounds.run(
            rows, plan, self.results, lambda _: alone, together=together
        )
        return missing

    def said(self) -> list[tuple[str, int, int, str, float]]:
        return [tuple(json.loads(line)) for line in self._log.read_text().splitlines()]

    def nothing_is_left(self) -> bool:
        return not any(Path("/proc", str(pid)).exists() for _, pid, *_ in self.said())


@pytest.fixture
def group(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Group:
    program, log = tmp_path / "child.py", tmp_path / "log"
    program.write_text(CHILD.format(log=str(log)))
    monkeypatch.setattr(bench.sides, "CHILD", program)
    monkeypatch.setattr(bench.one_process, "CHILD", program)
    monkeypatch.setattr(bench.environment, "build", lambda: "abc")
    sides = bench.sides.sides("cpu", "flagos")
    plan = bench.plan.Plan(*sides, 1, True, 0.0, lambda: {"torch": "2.13.0"})
    return Group(bench, log, plan)


def test_a_group_is_built_at_once_and_measured_one_by_one(group: Group) -> None:
    assert group.run(*(group.row(name) for name in "abc"), group.row("d", together=False)) == []
    said = group.said()
    three = [line for line in said if line[0] in "abc"]
    built = [at for *_, what, at in three if what == "built"]
    assert len(built) == 6
    assert max(at for *_, what, at in three if what == "build") < min(built)
    assert max(built) < min(at for *_, what, at in three if what == "turn")
    measured = [name for name, *_, what, _ in said if what in ("turn", "finish")]
    assert measured == [name for name in "abcd" for _ in range(6)]
    assert {(name, builders) for name, _, builders, *_ in said} == {
        *(("a", 6), ("b", 6), ("c", 6), ("d", 2))
    }
    # The one that is alone starts when the others have ended, and its sides take turns.
    alone = [what for name, *_, what, _ in said if name == "d"]
    assert alone[:2] == ["start", "start"]
    assert alone[2:6] == ["build", "built"] * 2
    for name, together in (("a", 3), ("d", 1)):
        (pair,) = group.results.rows[name]["pairs"]
        assert pair["built_with"] == together
        assert 0 <= pair["measured_s"] <= pair["s"]
    assert group.nothing_is_left()


def test_a_row_of_one_process_is_built_with_others(group: Group) -> None:
    one = replace(group.row("b"), one_process=True)
    assert group.run(group.row("a"), one, group.row("c")) == []
    words = [what for name, *_, what, _ in group.said() if name == "b"]
    assert words[:3] == ["start", "build", "built"]
    for turn in (words[3:5], words[5:7]):
        assert sorted(turn) == ["turn device", "turn native"]
    assert words[7:] == ["finish", "end"]
    (pair,) = group.results.rows["b"]["pairs"]
    assert (pair["turns"], pair["equal"], pair["built_with"]) == ([[1, 1], [1, 1]], True, 3)
    assert group.nothing_is_left()


def test_groups_are_rows_that_follow_one_another(bench: Any, group: Group) -> None:
    rows = [group.row(f"{number}") for number in range(8)]
    rows[2] = replace(rows[2], together=False)
    taken: list[Any] = [(row, {}) for row in rows]
    found = bench.rounds._groups(taken, 3)
    assert ["".join(row.name for row, _ in each) for each in found] == ["01", "2", "345", "67"]
    found = bench.rounds._groups(taken, 1)
    assert [len(each) for each in found] == [1] * 8


@pytest.mark.parametrize("fails", [False, True], ids=["native", "device"])
@pytest.mark.parametrize(
    ("says", "state"),
    [({"error": "RuntimeError: no"}, "failed"), ({"unavailable": "no"}, "unavailable")],
)
def test_a_row_that_fails_fails_alone(
    group: Group, fails: bool, says: dict[str, str], state: str
) -> None:
    group.plan = replace(group.plan, pairs=2)
    rows = [group.row("a"), group.row("b", fails=fails, says=says), group.row("c")]
    assert group.run(*rows) == (["b"] if state == "failed" else [])
    states = {name: record["state"] for name, record in group.results.rows.items()}
    assert states == {"a": "complete", "b": state, "c": "complete"}
    assert "no" in group.results.rows["b"]["error"]
    assert group.chosen == [["a", "b", "c"], ["a", "c"]]
    assert [p["built_with"] for p in group.results.rows["a"]["pairs"]] == [3, 2]
    assert group.nothing_is_left()


def test_what_hangs_is_over_before_others_are_measured(group: Group) -> None:
    hanging = replace(group.row("b", hangs="build"), limit_s=4)
    assert group.run(group.row("a"), hanging, group.row("c", hangs=1)) == ["b"]
    assert "took too long" in group.results.rows["b"]["error"]
    assert {group.results.rows[name]["state"] for name in "ac"} == {"complete"}
    assert group.nothing_is_left()


def test_the_end_of_a_run_leaves_what_a_group_has_measured(group: Group) -> None:
    rows = [group.row("a"), group.row("b", hangs="turn"), group.row("c")]
    assert group.run(*rows, seconds=5) == ["b", "c"]
    found = group.results.rows
    assert found["a"]["state"] == "complete"
    assert [found[name]["state"] for name in "bc"] == ["untested", "untested"]
    assert 1 < found["b"]["s_at_least"] < 7
    assert group.nothing_is_left()


def test_as_many_rows_are_built_as_there_is_time_for(bench: Any, group: Group) -> None:
    """Building counts once, of the longest; measuring counts for each."""

    def fitting(seconds: float, *known: dict[str, Any]) -> int:
        plan = replace(group.plan, deadline=time.monotonic() + seconds)
        count: int = bench.training._fitting([(row, record) for record in known], plan)
        return count

    row = group.row("a")
    quick, slow = ({"pairs": [{"s": s, "measured_s": 10.0}]} for s in (40.0, 110.0))
    assert fitting(200, quick, quick, slow) == 3  # 100 + 30
    assert fitting(125, quick, quick, slow) == 2
    assert fitting(45, quick, quick, slow) == 1
    assert fitting(1, quick) == 1
    # Of none has been timed anything: a guess, or what is known at least.
    guess, part = bench.training.QUICK_PAIR_S, bench.training.MEASURING
    assert fitting(1.1 * guess * (1 + part), {}, {}) == 2
    assert fitting(1.1 * guess * (1 + part), {}, {"s_at_least": 50.0}) == 1


def test_rows_that_do_not_fit_are_not_started(group: Group) -> None:
    rows = [group.row("a"), group.row("b"), replace(group.row("c"), limit_s=200)]
    group.results.rows["c"] = {"s_at_least": 100.0}
    assert group.run(*rows, seconds=30) == ["c"]
    assert group.chosen == [["a", "b"], ["c"]]
    assert {name for name, *_ in group.said()} == {"a", "b"}


def test_an_interrupt_leaves_nothing_running(bench: Any, group: Group) -> None:
    taken: list[Any] = [(group.row(name), {}) for name in "ab"]
    plan = replace(group.plan, deadline=time.monotonic() + 60, wanted=1)

    def interrupted() -> None:
        with bench.training.together(taken, plan) as measures:
            assert len(measures) == 2
            assert not group.nothing_is_left()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert group.nothing_is_left()
