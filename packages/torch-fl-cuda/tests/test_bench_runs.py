"""Owns: tests of the benchmark's runs: what is kept, what is measured again, what goes wrong.

Where only the bookkeeping is tested, small programs stand in for the ones that import PyTorch.
"""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

STARTS = """
import os, pathlib, sys, time
number = len(list(pathlib.Path({folder!r}).iterdir()))
pathlib.Path({folder!r}, str(os.getpid())).touch()
if number % 4 == 1: print("wrong")
elif number % 4 == 2: os.abort()
else: print("right")
"""
CHILD = """
import json, sys
print(json.dumps({{"target": {target!r}, "environment": {{}}, "start_s": 0, "import_s": 0}}))
sys.stdout.flush()
for line in sys.stdin:
    {answer}
"""


@pytest.fixture
def plan(bench: Any) -> Any:
    native, device = bench.sides.sides("cpu", "flagos")
    known = {"torch": "2.13.0", "machine": "here"}
    return bench.plan.Plan(native, device, 2, True, time.monotonic() + 100, lambda: known)


def test_a_pair_of_processes(bench: Any, plan: Any) -> None:
    """The whole way, with PyTorch: native without activation, and flagos on the host backend."""
    record: dict[str, Any] = {}
    saved: list[int] = []
    row = bench.rows.BY_NAME["mlp-train"]
    one = replace(plan, pairs=1)
    bench.training.measure(row, one, record, lambda: saved.append(len(record["pairs"])))
    assert saved == [1]
    assert record["state"] == "complete"
    (pair,) = record["pairs"]
    assert len(pair["turns"]) == row.quick["turns"]
    assert all(value > 0 for turn in pair["turns"] for value in turn)
    assert pair["native"]["first"] > pair["native"]["last"] > 0
    assert record["agreement"] == "bit for bit", f"{pair['native']} and {pair['device']}"
    assert pair["native"]["peak_bytes"] is None
    assert pair["device"]["peak_bytes"] > 0
    # Enough of them: nothing is started again.
    bench.training.measure(row, one, record, lambda: pytest.fail("measured again"))


def test_both_sides_in_one_process(bench: Any, plan: Any) -> None:
    record: dict[str, Any] = {}
    row = bench.rows.BY_NAME["qwen3-decode"]
    bench.training.measure(row, replace(plan, pairs=1), record, lambda: None)
    (pair,) = record["pairs"]
    assert len(pair["turns"]) == row.quick["turns"]
    assert all(value > 0 for turn in pair["turns"] for value in turn)
    assert pair["native"]["start_s"] == pair["device"]["start_s"]
    assert pair["equal"] is True
    assert record["agreement"] == "bit for bit", f"{pair['native']} and {pair['device']}"
    assert pair["native"]["peak_bytes"] is None
    assert pair["device"]["peak_bytes"] > 0


@pytest.mark.parametrize(
    ("target", "answer", "said"),
    [
        ("cuda", "", "runs cuda kernels, not cpu's"),
        ("cpu", "sys.exit('out of everything')", "status 1: out of everything"),
        ("cpu", "import time; time.sleep(60)", "took too long"),
        ("cpu", """print(json.dumps({"error": "RuntimeError: no"}), flush=True)""", "no"),
    ],
)
def test_children_that_fail(
    bench: Any,
    plan: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    answer: str,
    said: str,
) -> None:
    program = tmp_path / "child.py"
    program.write_text(CHILD.format(target=target, answer=answer or "pass"))
    monkeypatch.setattr(bench.sides, "CHILD", program)
    monkeypatch.setattr(bench.training, "QUICK_PAIR_S", 0.1)
    row = replace(bench.rows.BY_NAME["mlp-train"], limit_s=1.5)
    record: dict[str, Any] = {}
    with pytest.raises(bench.sides.ChildError, match=said):
        bench.training.measure(row, plan, record, lambda: None)
    assert record["pairs"] == []


def test_starts_are_counted(
    bench: Any, plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, folder = tmp_path / "start.py", tmp_path / "started"
    folder.mkdir()
    program.write_text(STARTS.format(folder=str(folder)))
    monkeypatch.setattr(bench.starts, "SCRIPT", program)
    quick = {"processes": 8, "at_a_time": 1, "timeout": 20}
    row = replace(bench.rows.BY_NAME["starts"], quick=quick)
    record: dict[str, Any] = {"counts": {"processes": 4, "aborts": 0, "wrong results": 0}}
    bench.starts.measure(row, plan, record, lambda: None)
    assert record["counts"] == {"processes": 8, "aborts": 1, "wrong results": 1}
    assert record["verdict"] == "over"
    assert record["state"] == "complete"
    assert any("exit status -6" in failure for failure in record["failures"])


def test_dispatch_runs_are_gathered(
    bench: Any, plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def line(name: str, ratio: float, **more: Any) -> dict[str, Any]:
        figures = {"native_ns": 100, "device_ns": 100 * ratio, "ratio": ratio}
        return {"name": name, "tensor_arguments": 1, "goal_ratio": None, **figures, **more}

    rows = [
        line("add", 1.02),
        line("mm", 1.2),
        line("bias: add", 3.0),
        line("MLP training step", 3.0, goal_ratio=1.1),
        line("import torch_fl", 3.0, tensor_arguments=None),
    ]
    program = tmp_path / "dispatch.py"
    data = {"environment": {}, "rows": rows}
    program.write_text(
        "import sys, pathlib\n"
        f"pathlib.Path(sys.argv[sys.argv.index('--json') + 1]).write_text({json.dumps(data)!r})"
    )
    monkeypatch.setattr(bench.dispatch_runs, "SCRIPT", program)
    monkeypatch.setattr(bench.dispatch_runs, "FIRST_RUN_S", 1.0)
    record: dict[str, Any] = {}
    bench.dispatch_runs.measure(bench.rows.BY_NAME["dispatch"], plan, record, lambda: None)
    assert len(record["pairs"]) == 2
    assert [each["name"] for each in record["operators"]] == ["add", "mm"]
    mean, worst = record["figures"]
    assert mean["value"] == pytest.approx((1.02 * 1.2) ** 0.5, abs=1e-4)
    assert worst["value"] == 1.2
    assert mean["verdict"] == worst["verdict"] == "over"


class Fake:
    """Stands in for what measures a row: one pair a call, or an error; out of time after some."""

    def __init__(self, out_of_time: type[Exception]) -> None:
        self.calls: list[str] = []
        self.error: Exception | None = None
        self.left = 100
        self._out_of_time = out_of_time

    def __call__(self, row: Any, plan: Any, record: dict[str, Any], save: Any) -> None:
        self.calls.append(row.name)
        if self.error is not None:
            raise self.error
        if not self.left:
            raise self._out_of_time("no time")
        self.left -= 1
        record.setdefault("pairs", []).append(1)
        done = len(record["pairs"]) >= plan.pairs
        record |= {"state": "complete" if done else "partial", "date": "2026-01-02"}
        save()

    def together(self, taken: Any, plan: Any) -> Any:
        """Stands in for what builds rows at the same time: all that it is given."""
        return nullcontext([self] * len(taken))


@pytest.fixture
def fake(bench: Any, monkeypatch: pytest.MonkeyPatch) -> Fake:
    found = Fake(bench.plan.OutOfTimeError)
    monkeypatch.setitem(bench.cuda.MEASURES, "steps", found)
    monkeypatch.setattr(bench.training, "together", found.together)
    monkeypatch.setattr(bench.environment, "build", lambda: "abc")
    monkeypatch.setattr(bench.sides, "environment", lambda *_: {"torch": "2.13.0"})
    return found


def _options(path: Path) -> list[str]:
    return ["--native", "cpu", "--quick", "--json", str(path), "--only", "lstm-train"]


def _run(bench: Any, path: Path, *more: str) -> dict[str, Any]:
    status = bench.cuda.main([*_options(path), *more])
    rows: dict[str, Any] = json.loads(path.read_text())["rows"]
    assert status == (rows["lstm-train"]["state"] not in ("complete", "unavailable"))
    return rows["lstm-train"]


def test_a_run_goes_on_where_the_last_one_ended(
    bench: Any, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new" / "performance.json"
    fake.left = 1
    assert _run(bench, path, "--pairs", "2")["state"] == "partial"
    fake.left = 100
    assert _run(bench, path, "--pairs", "2")["state"] == "complete"
    calls = len(fake.calls)
    _run(bench, path, "--pairs", "2")
    assert len(fake.calls) == calls  # it was complete
    assert len(_run(bench, path, "--pairs", "3")["pairs"]) == 3
    again = _run(bench, path, "--pairs", "1", "--again", "lstm-train")
    assert len(again["pairs"]) == 1
    # What is incomplete and of another build begins anew; what is complete stays.
    monkeypatch.setattr(bench.environment, "build", lambda: "def")
    assert len(_run(bench, path, "--pairs", "1")["pairs"]) == 1
    assert _run(bench, path, "--pairs", "1")["build"] == "abc"
    fake.left = 0
    assert _run(bench, path, "--pairs", "1")["build"] == "abc"
    assert bench.cuda.main([*_options(path), "--pairs", "5"]) == 1
    assert bench.cuda.main([*_options(path), "--again", "lstm-train"]) == 1
    # Without time nothing takes the place of what there is, and with it the new pair does.
    assert json.loads(path.read_text())["rows"]["lstm-train"]["build"] == "abc"
    fake.left = 1
    assert _run(bench, path, "--pairs", "5")["pairs"] == [1]
    assert _run(bench, path, "--pairs", "5")["build"] == "def"
    assert _run(bench, path, "--pairs", "1")["state"] == "complete"  # fewer are wanted now


def test_rows_take_turns(bench: Any, fake: Fake, tmp_path: Path) -> None:
    """Out of time, all have something; the one with fewest goes on."""
    path = tmp_path / "performance.json"
    only = ("lstm-train", "mlp-train", "graph-replay")
    options = ["--native", "cpu", "--quick", "--json", str(path), "--only", *only, "--pairs", "3"]
    fake.left = 5
    bench.cuda.main(options)
    order = [name for name in bench.rows.BY_NAME if name in only]
    assert fake.calls[:5] == [*order, *order[:2]]
    rows = json.loads(path.read_text())["rows"]
    assert [len(rows[name]["pairs"]) for name in order] == [2, 2, 1]
    fake.calls.clear()
    fake.left = 100
    bench.cuda.main(options)
    assert fake.calls == [order[2], *order]
    rows = json.loads(path.read_text())["rows"]
    assert {rows[name]["state"] for name in only} == {"complete"}


def test_a_reason_stays_with_its_row(bench: Any, fake: Fake, tmp_path: Path) -> None:
    path = tmp_path / "performance.json"
    _run(bench, path, "--pairs", "1")
    text = "cuDNN | took another algorithm"
    bench.cuda.main(
        ["--native", "cpu", "--quick", "--json", str(path), "--reason", "lstm-train", text]
    )
    assert _run(bench, path, "--pairs", "1", "--again", "lstm-train")["reason"] == text
    assert bench.cuda.main(["--json", str(tmp_path / "none"), "--reason", "starts", text]) == 2


def test_errors_are_kept_and_the_row_is_tried_again(bench: Any, fake: Fake, tmp_path: Path) -> None:
    path = tmp_path / "performance.json"
    fake.left = 1
    _run(bench, path, "--pairs", "2")
    fake.left = 100
    fake.error = bench.sides.ChildError("it died\nfor this reason")
    failed = _run(bench, path, "--pairs", "2")
    assert (failed["state"], failed["pairs"]) == ("failed", [1])
    assert "for this reason" in failed["error"]
    fake.error = bench.plan.OutOfTimeError("no time")
    assert _run(bench, path, "--pairs", "2")["state"] == "failed"
    fake.error = None
    assert _run(bench, path, "--pairs", "2")["state"] == "complete"
    fake.error = bench.sides.UnavailableError("no graphs")
    assert _run(bench, path, "--again", "lstm-train")["state"] == "unavailable"
    calls = len(fake.calls)
    _run(bench, path)
    assert len(fake.calls) == calls


@pytest.mark.parametrize(
    ("state", "verdict", "statuses"),
    [
        ("complete", "ok", [0, 0]),
        ("complete", "over", [0, 1]),
        ("complete", "wrong", [1, 1]),
        ("unavailable", "-", [0, 0]),
        ("failed", "ok", [1, 1]),
        ("partial", "ok", [1, 1]),
    ],
)
def test_exit_statuses(bench: Any, state: str, verdict: str, statuses: list[int]) -> None:
    row = bench.rows.BY_NAME["lstm-train"]
    results = bench.results.Results(None, "cuda", "flagos", quick=False)
    results.rows[row.name] = {"state": state, "verdict": verdict}
    missing = [] if state in ("complete", "unavailable") else [row.name]
    for strict, status in zip((False, True), statuses, strict=True):
        assert bench.command.conclude([row], results, missing, strict=strict) == status


def test_a_pair_that_the_end_cut_off_is_not_begun_in_as_little_time(
    bench: Any, plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "child.py"
    program.write_text(CHILD.format(target="cpu", answer="import time; time.sleep(60)"))
    monkeypatch.setattr(bench.sides, "CHILD", program)
    monkeypatch.setattr(bench.training, "QUICK_PAIR_S", 0.1)
    row = bench.rows.BY_NAME["mlp-train"]
    results = bench.results.Results(None, "cpu", "flagos", quick=True)
    results.rows[row.name] = {"state": "complete", "pairs": [1], "build": "another"}
    short = replace(plan, deadline=time.monotonic() + 1.5)
    measure = bench.training.measure
    assert bench.rounds.run([row], short, results, lambda _: measure) == [row.name]
    kept = results.rows[row.name]
    assert 1.0 < kept["s_at_least"] < 3.0
    assert (kept["state"], kept["build"]) == ("complete", "another")  # it is as it was
    # As much time again is too little, and it is not started; a new record knows it too.
    monkeypatch.setattr(bench.training, "Pair", lambda *_: pytest.fail("started"))
    short = replace(plan, deadline=time.monotonic() + 1.0)
    assert bench.rounds.run([row], short, results, lambda _: measure, [row.name]) == [row.name]
    assert results.rows[row.name]["pairs"] == [1]


def test_pairs_of_different_programs_do_not_mix(
    bench: Any, plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = iter(["transformers 5", "transformers 5", "plain"])
    pair = MagicMock(s=0.1)
    pair.__enter__.return_value.measure = lambda _: ({"s": 0.1}, next(notes))
    monkeypatch.setattr(bench.training, "Pair", lambda *_: pair)
    row = bench.rows.BY_NAME["mlp-train"]
    record: dict[str, Any] = {}
    three = replace(plan, pairs=3)
    with pytest.raises(bench.sides.ChildError, match="ran transformers 5, this one plain"):
        bench.training.measure(row, three, record, lambda: None, figures=lambda *_: {})
    assert (len(record["pairs"]), record["ran"]) == (2, "transformers 5")


@pytest.mark.parametrize("answer", ["print('no JSON')", "print('[1]')", "print('{}')"])
def test_an_answer_that_cannot_be_read_fails_the_row_alone(
    bench: Any, plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    program = tmp_path / "child.py"
    program.write_text(CHILD.format(target="cpu", answer=answer + "; sys.stdout.flush()"))
    monkeypatch.setattr(bench.sides, "CHILD", program)
    row = bench.rows.BY_NAME["mlp-train"]
    results = bench.results.Results(None, "cpu", "flagos", quick=True)
    bench.rounds.run([row], plan, results, lambda _: bench.training.measure)
    assert results.rows[row.name]["state"] == "failed"
    assert "an answer" in results.rows[row.name]["error"]


def test_files_that_hold_something_else(
    bench: Any, fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "performance.json"
    _run(bench, path, "--pairs", "1")
    before = path.read_text()
    assert bench.cuda.main(["--json", str(path)]) == 2  # those of CUDA
    assert "another --json" in capsys.readouterr().err
    assert bench.cuda.main(["--native", "cpu", "--json", str(path)]) == 2  # not quick
    assert path.read_text() == before
    path.write_text("[]")
    assert bench.cuda.main(["--json", str(path)]) == 2
    assert "holds no results" in capsys.readouterr().err


def test_without_time_nothing_is_started(bench: Any, plan: Any) -> None:
    late = replace(plan, deadline=time.monotonic() + 0.5)
    for row in bench.rows.ROWS:
        with pytest.raises(bench.plan.OutOfTimeError):
            bench.cuda.MEASURES[row.kind](row, late, {}, lambda: None)


def test_another_build_has_another_name(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ours").mkdir()
    source = tmp_path / "ours" / "__init__.py"
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(bench.environment, "PACKAGES", ("ours",))
    names = set()
    for text in ("a = 1", "a = 1", "a = 2"):
        source.write_text(text)
        names.add(bench.environment.build())
    assert len(names) == 2


def test_no_program_of_ours_hides_a_package_from_the_measured_processes(bench: Any) -> None:
    names = {path.stem for path in (bench.folder / "measured").glob("*.py")}
    assert all(name.startswith("_") for name in names)
    programs = (bench.sides.CHILD, bench.one_process.CHILD, bench.starts.SCRIPT)
    assert {program.parent for program in programs} == {bench.folder / "measured"}
