"""Owns: tests of a run of the operator database: processes, result files, exclusions, verdict."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import op_db_workers
import pytest
import yaml

from torch_fl.testing.op_db import exclusions
from torch_fl.testing.op_db.passes import PASSES
from torch_fl.testing.op_db.report import Report, expected_units, unit_line
from torch_fl.testing.op_db.results import (
    Failure,
    Header,
    ResultError,
    ResultFile,
    UnitResult,
    merge,
    read,
)
from torch_fl.testing.op_db.runner import Runner, WorkerStartError
from torch_fl.testing.op_db.tiers import TIERS
from torch_fl.testing.op_db.worker import Setup

if TYPE_CHECKING:
    from pathlib import Path

SETUP = Setup("cpu", seed=1, limits=TIERS["ci"])
HEADER = Header("cpu", "ci", "2.0", "3.10", "x86_64", 1, ("forward", "out"), ("add", "mul"))


def _run(units: list[tuple[str, str]], workers: int, limit_s: float) -> list[UnitResult]:
    runner = Runner(SETUP, workers, limit_s, op_db_workers.serve)
    results: list[UnitResult] = []
    try:
        assert runner.ready.entries == op_db_workers.ENTRIES
        runner.run(units, results.append)
    finally:
        runner.close()
    return results


def test_a_crash_costs_one_unit_and_the_run_goes_on() -> None:
    units = [("good", "a"), ("abort", "a"), ("good", "b"), ("exit", "a"), ("good", "c")]
    results = _run(units, 1, 60.0)
    assert [(unit.op, unit.status) for unit in results] == [
        ("good", "done"),
        ("abort", "crash"),
        ("good", "done"),
        ("exit", "crash"),
        ("good", "done"),
    ]
    assert len({unit.passed for unit in results if unit.op == "good"}) == 3  # process ids
    aborted, ended = (unit.failures[0] for unit in results if unit.status == "crash")
    assert aborted.case == "at abort"
    assert "signal 6" in aborted.message
    assert "last words of abort" in aborted.message
    assert "last words of abort" not in ended.message  # those were another process's
    assert "exit status 3" in ended.message
    assert all(unit.failed == 1 and not unit.ok for unit in results if unit.status == "crash")


def test_a_hang_ends_at_the_time_limit() -> None:
    results = _run([("hang", "a"), ("good", "a")], 1, 1.0)
    assert [unit.status for unit in results] == ["timeout", "done"]
    assert "within 1 s" in results[0].failures[0].message


def test_workers_share_a_queue() -> None:
    units = [("good", str(index)) for index in range(30)] + [("exit", "a")]
    results = _run(units, 2, 60.0)
    assert sorted(unit.key for unit in results) == sorted(units)


def test_a_worker_that_does_not_start_ends_the_run() -> None:
    with pytest.raises(WorkerStartError, match="exit status 7"):
        Runner(SETUP, 1, 60.0, op_db_workers.serve_nothing)


def test_an_error_while_recording_ends_the_run() -> None:
    runner = Runner(SETUP, 2, 60.0, op_db_workers.serve)

    def fail(unit: UnitResult) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        runner.run([("good", "a"), ("hang", "a")], fail)
    runner.close()


def _unit(op: str, pass_name: str, passed: int = 0, failed: int = 0) -> UnitResult:
    failures = [Failure("sample 0", "value", "wrong")] if failed else []
    return UnitResult(op, pass_name, passed=passed, failed=failed, failures=failures)


def test_results_are_kept_and_resumed(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    first = _unit("add", "forward", passed=3)
    second = replace(_unit("add", "out", failed=2), status="crash", seconds=1.5)
    file = ResultFile(path, HEADER, resume=False)
    file.append(first)
    file.append(second)
    file.close()
    assert read(path) == (HEADER, {first.key: first, second.key: second})

    with path.open("a") as stream:
        stream.write('{"op": "mul", "pass_')  # cut short by a kill
    file = ResultFile(path, HEADER, resume=True)
    assert file.done == {first.key: first, second.key: second}
    third = _unit("mul", "forward", passed=1)
    file.append(third)
    file.close()
    assert list(read(path)[1].values()) == [first, second, third]


def test_results_of_another_setup_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    ResultFile(path, HEADER, resume=False).close()
    with pytest.raises(ResultError, match="exists"):
        ResultFile(path, HEADER, resume=False)
    with pytest.raises(ResultError, match=r"torch '2\.0' and not '2\.1'"):
        ResultFile(path, replace(HEADER, torch="2.1"), resume=True)
    path.write_text("no json\n")
    with pytest.raises(ResultError, match="no result file"):
        read(path)
    path.write_text("")
    with pytest.raises(ResultError, match="no header"):
        read(path)


def _file(path: Path, header: Header, *units: UnitResult) -> Path:
    file = ResultFile(path, header, resume=False)
    for unit in units:
        file.append(unit)
    file.close()
    return path


def test_shards_are_merged_once_each(tmp_path: Path) -> None:
    one = _file(tmp_path / "1", HEADER, _unit("add", "forward", 1), _unit("add", "out", 1))
    two = _file(tmp_path / "2", HEADER, _unit("mul", "forward", 1), _unit("mul", "out", 1))
    header, units = merge([one, two])
    assert Report.of(units, expected_units(header), []).ok
    _, units = merge([one])
    incomplete = Report.of(units, expected_units(header), [])
    assert incomplete.missing_units == 2
    assert not incomplete.ok
    with pytest.raises(ResultError, match="repeats add"):
        merge([one, two, one])
    other = _file(tmp_path / "3", replace(HEADER, device="meta"))
    with pytest.raises(ResultError, match="another setup"):
        merge([one, other])


def _report(*units: UnitResult, excluded: list[exclusions.Exclusion] | None = None) -> Report:
    by_key = {unit.key: unit for unit in units}
    return Report.of(by_key, set(by_key), excluded or [])


def test_entries_and_samples_are_counted_apart() -> None:
    report = _report(
        _unit("add", "forward", passed=5),
        _unit("add", "out", passed=5),
        _unit("mul", "forward", passed=6),
        _unit("mul", "out", passed=3, failed=1),
        _unit("none", "forward"),
    )
    assert report.failed_entries == ("mul",)
    assert (report.passed_entries, report.entries_without_samples) == (1, 1)
    assert (report.samples, report.samples_passed) == (20, 19)
    assert not report.ok
    closing = report.closing_lines("cpu")[-1]
    assert re.match(r"1 passed, 1 failed, 0 excluded, 1 without", closing), closing
    assert "95.000% of 20 samples" in closing


def test_a_run_without_a_sample_is_no_success() -> None:
    assert _report().objections() == ["no sample was compared"]
    assert _report(_unit("none", "forward")).objections() == ["no sample was compared"]


def test_excluded_failures_count_as_samples_and_not_as_entries() -> None:
    excluded = [exclusions.Exclusion("mul", ("out",), "a reason")]
    many = _unit("add", "forward", passed=999)
    report = _report(many, _unit("mul", "out", failed=1), excluded=excluded)
    assert report.ok
    assert report.excluded_entries == ("mul",)
    assert report.samples == 1000
    # Another pass of the same operator is not excluded.
    report = _report(many, _unit("mul", "forward", failed=1), excluded=excluded)
    assert report.failed_entries == ("mul",)
    # Too many failing samples remain a failure, excluded or not.
    report = _report(
        _unit("add", "forward", passed=99), _unit("mul", "out", failed=1), excluded=excluded
    )
    assert report.objections() == ["99.000% of the samples pass, 99.5% must"]
    assert replace(report, whole=False).ok  # of a few chosen entries no rate is required


def test_an_exclusion_that_passes_is_an_error() -> None:
    excluded = [exclusions.Exclusion("mul", ("forward", "out"), "a reason")]
    passing, failing = _unit("mul", "forward", passed=999), _unit("mul", "out", failed=1)
    report = _report(passing, failing, excluded=excluded)
    assert report.passing_exclusions == (("mul", "forward"),)
    assert report.objections() == ["mul passes in pass forward: remove its exclusion"]
    # With limited samples it proves nothing: the failing one may be among those left out.
    report = _report(replace(passing, truncated=True), failing, excluded=excluded)
    assert report.ok
    # Neither does a pass that was not run.
    assert _report(failing, _unit("add", "out", passed=999), excluded=excluded).ok


def _load(tmp_path: Path, *items: object) -> list[exclusions.Exclusion]:
    path = tmp_path / "list.yaml"
    path.write_text(yaml.safe_dump({"exclusions": list(items)}))
    entries = ["add", *(f"op{index}" for index in range(20))]
    return exclusions.load(path, entries, PASSES)


def test_the_exclusion_list_is_checked(tmp_path: Path) -> None:
    good = {"op": "add", "passes": ["forward"], "reason": "because"}
    assert _load(tmp_path, good) == [exclusions.Exclusion("add", ("forward",), "because")]
    wrong = {
        "no entry of op_db": [{**good, "op": "subtract"}],
        "no pass 'backward'": [{**good, "passes": ["backward"]}],
        "must be a list": [{**good, "passes": "forward"}],
        "a reason is required": [{**good, "reason": " "}],
        "has the keys": [{"op": "add", "passes": ["forward"]}],
        "excluded twice": [good, good],
        "at most 15": [{**good, "op": f"op{index}"} for index in range(16)],
    }
    for message, items in wrong.items():
        with pytest.raises(exclusions.ExclusionError, match=message):
            _load(tmp_path, *items)
    empty = tmp_path / "empty.yaml"
    empty.write_text("exclusions: []\n")
    assert exclusions.load(empty, ["add"], PASSES) == []
    empty.write_text("")
    with pytest.raises(exclusions.ExclusionError, match="one key"):
        exclusions.load(empty, ["add"], PASSES)


def test_tiers_name_every_pass() -> None:
    assert set(TIERS["ci"]) == set(TIERS["full"]) == set(PASSES)
    assert set(TIERS["selfcheck"]) <= set(PASSES)
    assert all(limit is None for limit in TIERS["full"].values())


def test_a_unit_is_told_in_one_line() -> None:
    unit = replace(_unit("add", "out", passed=2, failed=1), inexact=1, largest_difference=0.5)
    assert unit_line(unit) == (
        "FAIL add [out] 2 passed, 1 failed, 1 inexact, largest difference 0.5, 0.00 s"
    )


def _command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch_fl.testing.op_db", "--device", "cpu", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_command_line_end_to_end(tmp_path: Path) -> None:
    out = str(tmp_path / "results.jsonl")
    common = ("--workers", "1", "--ops", "add,view,sgn", "--passes", "float32,out", "--out", out)
    finished = _command(*common)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    last = finished.stdout.splitlines()[-1]
    assert re.match(r"3 passed, 0 failed, 0 excluded, 0 without .*100\.000%", last), last
    assert "error: " in _command(*common).stderr  # the file exists
    resumed = _command(*common, "--resume")
    assert resumed.returncode == 0
    assert "0 of 9 units to run" in resumed.stdout
    assert resumed.stdout.splitlines()[-1] == last
    merged = _command("--merge", out)
    assert merged.returncode == 1
    assert "pairs are missing" in merged.stdout
    unknown = _command("--ops", "no_such_operator")
    assert unknown.returncode == 2
    assert "no_such_operator" in unknown.stderr
