"""Owns: tests of whole runs: the command line, the pytest plugin, evidence, the self-check.

Where nothing is said of a device it is the CPU, which is stock CPU's equal by itself.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from torch_fl.cli import conformance
from torch_fl.testing import evidence
from torch_fl.testing.harness.configurations import CONFIGURATIONS, PLAIN
from torch_fl.testing.harness.exclusions import Exclusion
from torch_fl.testing.harness.report import Report
from torch_fl.testing.harness.results import Failure, Header, UnitResult
from torch_fl.testing.harness.worker import Ready
from torch_fl.testing.running import Outcome, Request, RequestError, plan_of
from torch_fl.testing.suites import SUITES

if TYPE_CHECKING:
    from pathlib import Path

READY = Ready("flagos:0", 1, "2.13.0", "other", "1.2", {"op_db": ("add", "mul", "view")})


def _plan(ready: Ready = READY, **how: object) -> dict[str, set[str]]:
    request = Request(suites=("op_db",), **how)  # type: ignore[arg-type]
    plan = plan_of(request, ready)
    return {name: {entry for _, entry, _ in units} for name, (_, units) in plan.units.items()}


def test_a_request_is_made_into_units() -> None:
    everything = {"add", "mul", "view"}
    assert _plan(entries=("m*",))[PLAIN] == {"mul"}
    assert _plan(shard=(1, 2))[PLAIN] == {"add", "view"}
    assert _plan(shard=(2, 2))[PLAIN] == {"mul"}
    assert _plan() == dict.fromkeys(
        (PLAIN, "route-boxing", "route-composite", "route-cpu"), everything
    )
    assert set(_plan(replace(READY, devices=2))) == set(CONFIGURATIONS) - {"guard"}
    assert set(_plan(replace(READY, plugin="host"))) == set(CONFIGURATIONS)
    assert set(_plan(replace(READY, plugin="cpu"))) == {PLAIN}


def test_other_configurations_have_fewer_samples() -> None:
    plan = plan_of(Request(suites=("op_db",)), READY)
    assert {name: tier for name, (tier, _) in plan.units.items()} == {
        PLAIN: "ci",
        "route-boxing": "glance",
        "route-composite": "glance",
        "route-cpu": "glance",
    }
    full = plan_of(Request(suites=("op_db",), tier="full"), READY)
    assert full.units[PLAIN][0] == "full"
    assert full.units["route-cpu"][0] == "ci"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"entries": ("nothing*",)}, "no entry of op_db matches 'nothing"),
        ({"passes": ("sideways",)}, "no pass 'sideways'; there are"),
        ({"configurations": ("odd",)}, "no configuration 'odd'; there are plain"),
        ({"configurations": ("guard",)}, "only the host backend has it"),
        ({"configurations": ("second-device",)}, "it needs 2 devices, here are 1"),
        ({"shard": (3, 2)}, "shard 3/2"),
    ],
)
def test_what_does_not_exist_is_named(how: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        _plan(**how)


def test_a_configuration_is_in_force_for_new_processes_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLAGOS_HOST_DEVICES", "3")
    monkeypatch.delenv("FLAGOS_PLUGIN", raising=False)
    with CONFIGURATIONS["second-device"].in_force({"FLAGOS_PLUGIN": "host"}):
        assert os.environ["FLAGOS_HOST_DEVICES"] == "2"
        assert os.environ["FLAGOS_PLUGIN"] == "host"
    assert os.environ["FLAGOS_HOST_DEVICES"] == "3"
    assert "FLAGOS_PLUGIN" not in os.environ
    assert CONFIGURATIONS["second-device"].device("flagos") == "flagos:1"
    assert CONFIGURATIONS[PLAIN].device("flagos") == "flagos"


def _outcome(tier: str = "ci", **changed: object) -> Outcome:
    header = Header(
        device="flagos:0",
        plugin="host",
        plugin_version="0.1.0",
        kind="host",
        tier=tier,
        torch="2.13.0+cpu",
        python="3.11.7",
        machine="x86_64",
        seed=1,
        configurations=(PLAIN, "guard"),
        passes={PLAIN: {"op_db": ("forward", "out")}, "guard": {"op_db": ("forward",)}},
        entries={"op_db": ("add", "mul", "none")},
        date="2026-01-02",
    )
    header = replace(header, **changed)  # type: ignore[arg-type]
    failures = [Failure("sample 0", "value", "wrong")]
    units = [
        UnitResult("add", "forward", "op_db", PLAIN, passed=5),
        UnitResult("add", "out", "op_db", PLAIN, passed=4, failed=2, failures=failures),
        UnitResult("mul", "forward", "op_db", PLAIN, passed=7, failed=1, failures=failures),
        UnitResult("none", "forward", "op_db", PLAIN),
        UnitResult("add", "forward", "op_db", "guard", passed=3),
    ]
    by_key = {unit.key: unit for unit in units}
    exclusions = [Exclusion("op_db", "add", ("out",), "a reason")]
    return Outcome(header, by_key, exclusions, Report.of(by_key, by_key.keys(), exclusions))


def test_evidence_counts_entries_and_passes(tmp_path: Path) -> None:
    path = evidence.record(tmp_path, _outcome())
    assert path == tmp_path / "host" / "2.13.0-host.json"
    data = json.loads(path.read_text())
    assert (data["plugin"], data["kind"], data["torch"]) == ("host", "host", "2.13.0+cpu")
    run = data["runs"][PLAIN]["op_db"]
    assert run["entries"] == {"add": "9 0 2", "mul": "7 1 0", "none": "0 0 0"}
    assert run["passes"] == {"forward": "12 1 0", "out": "4 0 2"}
    assert (run["compared"], run["empty"]) == (2, 1)
    facts = ("date", "tier", "plugin_version", "python", "machine", "device")
    assert [run[name] for name in facts] == [
        "2026-01-02",
        "ci",
        "0.1.0",
        "3.11.7",
        "x86_64",
        "flagos:0",
    ]
    guarded = data["runs"]["guard"]["op_db"]
    assert guarded["passes"] == {"forward": "3 0 0"}
    assert guarded["entries"] == {}, "of other configurations only what failed is kept"


def test_recording_keeps_what_it_does_not_replace(tmp_path: Path) -> None:
    evidence.record(tmp_path, _outcome())
    later = _outcome(tier="full", date="2026-02-03")
    later.units = {key: unit for key, unit in later.units.items() if key[0] == PLAIN}
    path = evidence.record(tmp_path, later)
    runs = json.loads(path.read_text())["runs"]
    assert runs[PLAIN]["op_db"]["date"] == "2026-02-03"
    assert runs["guard"]["op_db"]["date"] == "2026-01-02"


def test_a_part_of_a_run_is_no_evidence(tmp_path: Path) -> None:
    outcome = _outcome()
    outcome.report = replace(outcome.report, whole=False)
    with pytest.raises(evidence.EvidenceError, match="only whole suites"):
        evidence.record(tmp_path, outcome)
    assert not list(tmp_path.iterdir())


def test_the_help_names_the_suites() -> None:
    assert tuple(SUITES) == conformance.SUITES


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch_fl.testing", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_suite_that_takes_long_runs_only_by_its_name() -> None:
    assert set(Request().chosen_suites()) == set(SUITES) - set(conformance.BY_NAME)
    assert set(Request(suites=("compiled",)).chosen_suites()) == {"compiled"}
    assert {name for name, suite in SUITES.items() if suite.by_name} == set(conformance.BY_NAME)


def test_wrong_usage_is_told_at_once() -> None:
    done = _run("--suite", "no_such_suite")
    assert done.returncode == 2
    assert "there is no suite 'no_such_suite'; there are op_db, " in done.stderr


@pytest.mark.slow
def test_the_command_line_end_to_end(tmp_path: Path) -> None:
    out = str(tmp_path / "results.jsonl")
    words = ("--device", "cpu", "--workers", "1", "--suite", "op_db,optim_db", "--out", out)
    words += ("--ops", "add,view,SGD", "--passes", "forward,out,for_loop")
    done = _run(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert re.match(r"3 passed, 0 failed, 0 excluded, 0 without .*100\.000%", last), last
    assert "exists: resume it" in _run(*words).stderr
    resumed = _run(*words, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "0 of 5 units to run" in resumed.stdout
    assert resumed.stdout.splitlines()[-1] == last
    merged = _run("--merge", out)
    assert merged.returncode == 1
    assert "pairs are missing" in merged.stdout


@pytest.mark.slow
def test_the_suites_run_on_flagos_in_every_configuration() -> None:
    done = _run("--ops", "mul,cat,_refs.mul,nn_Linear,Adam,_foreach_mul", "--workers", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    for name in CONFIGURATIONS:
        assert re.search(rf"^op_db +{name} +2 +0 ", done.stdout, re.MULTILINE), done.stdout


SELFCHECKS = {
    "op_db": "add,logaddexp*,std,cov,nn.functional.*_loss",
    "error_inputs": "cat,hstack,nn.functional.conv2d",
    "python_ref_db": "_refs.add,_refs.sub,_refs.mul",
    "module_db": "nn_Linear,nn_LayerNorm,nn_Transformer*",
    "optim_db": "SGD,Adam,Rprop",
    "foreach_op_db": "_foreach_add,_foreach_mul,_foreach_exp,_foreach_norm",
    "deterministic": "add,logaddexp*,std,cov,nn.functional.*_loss",
    "compiled": "sigmoid,where,mm,sum",
}


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES)
def test_each_suite_sees_wrong_operators(suite: str) -> None:
    """A few entries; `torch-fl conformance --selfcheck` takes all of them."""
    done = _run("--selfcheck", "--suite", suite, "--ops", SELFCHECKS[suite], "--workers", "1")
    row = re.search(rf"^{suite} +(\d+) +(\d+) ", done.stdout, re.MULTILINE)
    assert row, done.stdout + done.stderr
    assert int(row[1]) >= 2, done.stdout


@pytest.mark.slow
def test_the_pytest_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("from torch_fl.testing.conformance import *\n")
    exclusions = tmp_path / "lists"
    exclusions.mkdir()
    (exclusions / "op_db.yaml").write_text(
        "exclusions:\n- {entry: view, passes: [forward], reason: to see that it must go}\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "torch_fl.testing.pytest_plugin", "-q", "-rsf"]
    command += ["-p", "no:cacheprovider", "--conformance-suite", "op_db", "--conformance-ops"]
    command += ["add,view,zeros", "--conformance-passes", "forward,complex64,inplace"]
    command += ["--conformance-exclusions", str(exclusions), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "[op_db-view-forward-plain]" in done.stdout
    assert "remove its exclusion" in done.stdout
    assert "stock CPU carries out no sample" in done.stdout
    assert re.search(r"1 failed, \d+ passed, \d+ skipped", done.stdout), done.stdout


@pytest.mark.slow
def test_the_plugin_collects_the_package_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "torch_fl.testing.pytest_plugin", "-q"]
    command += ["-p", "no:cacheprovider", "--collect-only", "--conformance-suite", "optim_db"]
    command += ["--conformance-ops", "SGD", "--conformance-passes", "fused,errors", "--pyargs"]
    for target in ("torch_fl.testing", "torch_fl.testing.conformance"):
        done = subprocess.run(
            [*command, target], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found = [line for line in done.stdout.splitlines() if "test_conforms[" in line]
        assert len(found) == len(set(found)) == 2, done.stdout
