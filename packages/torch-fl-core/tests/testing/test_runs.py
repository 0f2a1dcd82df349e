"""Owns: tests of what is around a comparison: processes, result files, exclusions, verdict."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import fake_workers
import pytest
import yaml

from torch_fl.testing.harness import exclusions
from torch_fl.testing.harness.report import Report, expected_units, table_rows, unit_line
from torch_fl.testing.harness.results import (
    Failure,
    Header,
    ResultError,
    ResultFile,
    UnitResult,
    merge,
    read,
)
from torch_fl.testing.harness.runner import Runner, WorkerStartError
from torch_fl.testing.harness.worker import Setup
from torch_fl.testing.suites import SUITES

if TYPE_CHECKING:
    from pathlib import Path

    from torch_fl.testing.harness.runner import Unit

SETUP = Setup("cpu", seed=1, tier="ci", suites=("fake",))
HEADER = Header(
    device="cpu",
    plugin="cpu",
    plugin_version="",
    kind="host",
    tier="ci",
    torch="2.0",
    python="3.10",
    machine="x86_64",
    seed=1,
    configurations=("plain",),
    passes={"plain": {"fake": ("forward", "out")}},
    entries={"fake": ("add", "mul")},
    date="2026-01-01",
)


def _run(pairs: list[tuple[str, str]], workers: int, limit_s: float) -> list[UnitResult]:
    runner = Runner(SETUP, workers, limit_s, fake_workers.serve)
    results: list[UnitResult] = []
    try:
        assert runner.ready.entries == {"fake": fake_workers.ENTRIES}
        runner.run(_units(pairs), results.append)
    finally:
        runner.close()
    return results


def _units(pairs: list[tuple[str, str]]) -> list[Unit]:
    return [("fake", entry, name) for entry, name in pairs]


def test_a_crash_costs_one_unit_and_the_run_goes_on() -> None:
    units = [("good", "a"), ("abort", "a"), ("good", "b"), ("exit", "a"), ("good", "c")]
    results = _run(units, 1, 60.0)
    assert [(unit.entry, unit.status) for unit in results] == [
        ("good", "done"),
        ("abort", "crash"),
        ("good", "done"),
        ("exit", "crash"),
        ("good", "done"),
    ]
    assert len({unit.passed for unit in results if unit.entry == "good"}) == 3  # process ids
    aborted, ended = (unit.failures[0] for unit in results if unit.status == "crash")
    assert aborted.case == "at abort"
    assert "signal 6" in aborted.message
    assert "last words of abort" in aborted.message
    assert "last words of abort" not in ended.message  # those were another process's
    assert "exit status 3" in ended.message
    assert all(unit.failed == 1 and not unit.ok for unit in results if unit.status == "crash")


def test_a_process_whose_device_is_lost_evaluates_nothing_more() -> None:
    results = _run([("good", "a"), ("lose", "a"), ("good", "b")], 1, 60.0)
    assert [unit.status for unit in results] == ["done"] * 3
    before, lost, after = (unit.passed for unit in results)  # process ids
    assert before == lost
    assert after != lost


def test_a_hang_ends_at_the_time_limit() -> None:
    results = _run([("hang", "a"), ("good", "a")], 1, 1.0)
    assert [unit.status for unit in results] == ["timeout", "done"]
    assert "within 1 s" in results[0].failures[0].message


def test_workers_share_a_queue() -> None:
    units = [("good", str(index)) for index in range(30)] + [("exit", "a")]
    results = _run(units, 2, 60.0)
    assert sorted(unit.key[1:] for unit in results) == sorted(_units(units))
    assert {unit.configuration for unit in results} == {"plain"}


def test_a_worker_that_does_not_start_ends_the_run() -> None:
    with pytest.raises(WorkerStartError, match="exit status 7"):
        Runner(SETUP, 1, 60.0, fake_workers.serve_nothing)


def test_an_error_while_recording_ends_the_run() -> None:
    runner = Runner(SETUP, 2, 60.0, fake_workers.serve)

    def fail(unit: UnitResult) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        runner.run(_units([("good", "a"), ("hang", "a")]), fail)
    runner.close()


def _unit(entry: str, pass_name: str, passed: int = 0, failed: int = 0) -> UnitResult:
    failures = [Failure("sample 0", "value", "wrong")] if failed else []
    unit = UnitResult(entry, pass_name, passed=passed, failed=failed, failures=failures)
    return replace(unit, suite="fake", configuration="plain")


def test_results_are_kept_and_resumed(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    first = _unit("add", "forward", passed=3)
    second = replace(_unit("add", "out", failed=2), status="crash", seconds=1.5)
    file = ResultFile(path, HEADER, resume=False)
    file.append(first)
    file.append(second)
    file.close()
    assert read(path) == (HEADER, {first.key: first, second.key: second})
    assert read(path)[0].date == HEADER.date

    with path.open("a") as stream:
        stream.write('{"entry": "mul", "pass_')  # cut short by a kill
    file = ResultFile(path, replace(HEADER, date="2026-01-02"), resume=True)
    assert file.done == {first.key: first}, "what crashed is tried again"
    third = _unit("mul", "forward", passed=1)
    file.append(third)
    file.close()
    assert list(read(path)[1].values()) == [first, third]


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


def _exclusion(entry: str, *passes: str, configurations: tuple[str, ...] = ()) -> Any:
    return exclusions.Exclusion("fake", entry, passes, "a reason", configurations)


def test_entries_and_samples_are_counted_apart() -> None:
    report = _report(
        _unit("add", "forward", passed=5),
        _unit("add", "out", passed=5),
        _unit("mul", "forward", passed=6),
        _unit("mul", "out", passed=3, failed=1),
        _unit("none", "forward"),
    )
    (part,) = report.parts
    assert part.failed_entries == ("mul",)
    assert (part.passed_entries, part.entries_without_samples) == (1, 1)
    assert (part.samples, part.samples_passed) == (20, 19)
    assert not report.ok
    closing = report.closing_line()
    assert re.match(r"1 passed, 1 failed, 0 excluded, 1 without", closing), closing
    assert "95.000% of 20 samples" in closing


def test_each_suite_and_configuration_is_judged_by_itself() -> None:
    good = _unit("add", "forward", passed=9999)
    guarded = replace(_unit("add", "forward", passed=9, failed=1), configuration="guard")
    report = _report(good, guarded, replace(good, suite="other"))
    rows = [row[:6] for row in table_rows(report)]
    assert rows == [
        ("fake", "plain", "1", "0", "0", "0"),
        ("fake", "guard", "0", "1", "0", "0"),
        ("other", "plain", "1", "0", "0", "0"),
    ]
    assert report.objections() == [
        "fake (guard): 1 entries differ from stock CPU",
        "fake (guard): 90.000% of the samples pass, 99.5% must",
    ]


def test_a_run_without_a_sample_is_no_success() -> None:
    assert _report().objections() == ["no sample was compared"]
    empty = _report(_unit("none", "forward"))
    assert empty.objections() == ["fake (plain): no sample was compared"]


def test_excluded_failures_count_as_samples_and_not_as_entries() -> None:
    excluded = [_exclusion("mul", "out")]
    many = _unit("add", "forward", passed=999)
    report = _report(many, _unit("mul", "out", failed=1), excluded=excluded)
    assert report.ok
    assert report.parts[0].excluded_entries == ("mul",)
    assert report.parts[0].samples == 1000
    # Another pass of the same entry is not excluded.
    report = _report(many, _unit("mul", "forward", failed=1), excluded=excluded)
    assert report.parts[0].failed_entries == ("mul",)
    # Neither is another suite's, nor, if it says so, another configuration's.
    other = replace(_unit("mul", "out", failed=1), suite="other")
    assert not _report(many, other, excluded=excluded).ok
    guarded = replace(_unit("mul", "out", failed=1), configuration="guard")
    assert exclusions.excluded(excluded, guarded.key)
    here = [_exclusion("mul", "out", configurations=("plain",))]
    assert not exclusions.excluded(here, guarded.key)
    # Too many failing samples remain a failure, excluded or not.
    report = _report(
        _unit("add", "forward", passed=99), _unit("mul", "out", failed=1), excluded=excluded
    )
    assert report.objections() == ["fake (plain): 99.000% of the samples pass, 99.5% must"]
    assert replace(report, whole=False).ok  # of a few chosen entries no rate is required


def test_an_exclusion_that_passes_is_an_error() -> None:
    excluded = [_exclusion("mul", "forward", "out")]
    passing, failing = _unit("mul", "forward", passed=999), _unit("mul", "out", failed=1)
    report = _report(passing, failing, excluded=excluded)
    assert [unit.key for unit in report.passing_exclusions] == [passing.key]
    assert report.objections() == ["fake (plain): mul passes in pass forward: remove its exclusion"]
    # With limited samples it proves nothing: the failing one may be among those left out.
    report = _report(replace(passing, truncated=True), failing, excluded=excluded)
    assert report.ok
    # Neither does a pass that was not run.
    assert _report(failing, _unit("add", "out", passed=999), excluded=excluded).ok


def _load(tmp_path: Path, *items: object) -> list[exclusions.Exclusion]:
    (tmp_path / "fake.yaml").write_text(yaml.safe_dump({"exclusions": list(items)}))
    return _loaded(tmp_path)


def _loaded(tmp_path: Path) -> list[exclusions.Exclusion]:
    entries = ["add", *(f"op{index}" for index in range(20))]
    return exclusions.load(tmp_path, {"fake": ["forward", "out"]}, {"fake": entries}, "2.13.0+cpu")


def test_the_exclusion_list_is_checked(tmp_path: Path) -> None:
    good = {"entry": "add", "passes": ["forward"], "reason": "because"}
    assert _load(tmp_path, good) == [exclusions.Exclusion("fake", "add", ("forward",), "because")]
    assert _load(tmp_path, {**good, "since": "2.14"}) == []
    assert _load(tmp_path, {**good, "configurations": ["guard"]})[0].configurations == ("guard",)
    wrong = {
        "no entry of fake": [{**good, "entry": "subtract"}],
        "no pass 'backward'": [{**good, "passes": ["backward"]}],
        "no configuration 'odd'": [{**good, "configurations": ["odd"]}],
        "must be a list": [{**good, "passes": "forward"}],
        "a reason is required": [{**good, "reason": " "}],
        "has the keys": [{"entry": "add", "passes": ["forward"]}],
        "excluded twice": [good, good],
        "at most 15": [{**good, "entry": f"op{index}"} for index in range(16)],
    }
    for message, items in wrong.items():
        with pytest.raises(exclusions.ExclusionError, match=message):
            _load(tmp_path, *items)
    file = tmp_path / "fake.yaml"
    file.write_text("exclusions: []\n")
    assert _loaded(tmp_path) == []
    file.write_text("")
    with pytest.raises(exclusions.ExclusionError, match="one key"):
        _loaded(tmp_path)
    file.write_text("{{")
    with pytest.raises(exclusions.ExclusionError, match=r"fake\.yaml cannot be read"):
        _loaded(tmp_path)
    file.unlink()
    assert _loaded(tmp_path) == []
    with pytest.raises(exclusions.ExclusionError, match=r"there is no folder .*absent"):
        _loaded(tmp_path / "absent")


def test_the_exclusion_lists_name_suites() -> None:
    files = {path.stem for path in exclusions.DEFAULT_FOLDER.glob("*.yaml")}
    assert files
    assert files <= set(SUITES)


@pytest.mark.parametrize("name", SUITES)
def test_each_suite_has_every_tier(name: str) -> None:
    suite = SUITES[name]
    names = [item.name for item in suite.passes]
    assert len(names) == len(set(names))
    assert set(suite.passes_in("full")) == set(names)
    for tier in ("ci", "glance", "selfcheck"):
        assert suite.passes_in(tier), tier
    assert all(item.limit("full") is None for item in suite.passes)
    assert suite.wrong
    assert suite.wrong_entries > 0


def test_a_unit_is_told_in_one_line() -> None:
    unit = replace(_unit("add", "out", passed=2, failed=1), inexact=1, largest_difference=0.5)
    assert unit_line(unit) == (
        "FAIL fake add [out, plain] 2 passed, 1 failed, 1 inexact, largest difference 0.5, 0.00 s"
    )
