"""Owns: the tests of `./dev test --ecosystem`: rows, evidence, page. The libraries are not run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import Copy

from ci.dev import ecosystem, ecosystem_evidence, testing
from ci.dev.cli import ROOT
from ci.dev.ecosystem_environment import EcosystemEnvironment
from ci.dev.layout import Environment, Layout

SCRIPTS = ROOT / "ci" / "ecosystem"


def test_rows_are_the_scripts() -> None:
    scripts = {path.stem for path in SCRIPTS.glob("*.py")} - {"__init__", "harness"}
    assert {row.script for row in ecosystem.ROWS} == scripts


def test_every_package_is_pinned() -> None:
    text = (SCRIPTS / "requirements.txt").read_text(encoding="utf-8")
    pinned = set(re.findall(r"^([\w-]+)==[\d.]+$", text, re.MULTILINE))
    assert {package for row in ecosystem.ROWS for package in row.packages} <= pinned


def test_area_is_only_run_on_request() -> None:
    usual = [area.name for area in testing.choose(testing.Request())]
    assert "ecosystem" not in usual
    full = [area.name for area in testing.choose(testing.Request(full=True))]
    assert "ecosystem" not in full
    asked = testing.choose(testing.Request(areas=("ecosystem",)))
    assert [area.name for area in asked] == ["ecosystem"]


def test_the_flag_runs_the_command(copy: Copy) -> None:
    done = copy.dev("test", "--ecosystem")
    assert copy.calls("ecosystem")[-1][-2:] == [str(copy.root / "dev"), "ecosystem"]
    assert not copy.test_runs()
    assert "== ecosystem:" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ecosystem", "nope"), "there is no row nope. The rows are: transformers_models"),
        (("ecosystem", "--", "-x"), "takes nothing after `--`"),
    ],
)
def test_wrong_words(copy: Copy, words: tuple[str, ...], said: str) -> None:
    done = copy.dev(*words)
    assert done.returncode == 2
    assert said in done.stderr


def _result(**more: Any) -> dict[str, Any]:
    case = {"case": "train", "state": "works", "note": "", "seconds": 1.5, "expected": True}
    versions = {"torch": "2.13.0", "a": "1"}
    return {"versions": versions, "python": "3.11.7", "plugin": "host", "cases": [case], **more}


def _evidence(layout: Layout) -> Path:
    return layout.root / "evidence" / "ecosystem" / "host.json"


def test_evidence_is_merged_row_by_row(environment: Environment) -> None:
    layout = environment.layout
    ecosystem_evidence.merge(layout, "b_script", "b", _result())
    ecosystem_evidence.merge(layout, "a_script", "a", _result())
    before = _evidence(layout).read_text(encoding="utf-8")
    assert list(json.loads(before)) == ["a_script", "b_script"]
    # The same again, on another day and with another duration: the file stays as it is.
    changed = json.loads(before.replace(re.findall(r'"date": "(.*)"', before)[0], "2000-01-01"))
    _evidence(layout).write_text(json.dumps(changed), encoding="utf-8")
    cases = [{**_result()["cases"][0], "seconds": 9.0}]
    ecosystem_evidence.merge(layout, "a_script", "a", _result(cases=cases))
    assert json.loads(_evidence(layout).read_text(encoding="utf-8")) == changed
    ecosystem_evidence.merge(layout, "a_script", "a", _result(versions={"a": "2"}))
    after = json.loads(_evidence(layout).read_text(encoding="utf-8"))
    assert after["a_script"]["versions"] == {"a": "2"}
    assert after["a_script"]["date"] != "2000-01-01"


def test_what_never_ran_leaves_no_evidence(environment: Environment) -> None:
    layout = environment.layout
    ecosystem_evidence.merge(layout, "a_script", "a", _result(plugin=""))
    assert not _evidence(layout).exists()


def test_page(environment: Environment) -> None:
    layout = environment.layout
    broken = {"case": "a | b", "state": "does not work", "note": "why", "expected": True}
    ecosystem_evidence.merge(layout, "a_script", "a", _result(cases=[broken]))
    ecosystem_evidence.merge(layout, "b_script", "b", _result())
    page = ecosystem_evidence.page(layout)
    assert "2 cases: 1 work, 0 work with a note, 1 do not work." in page
    assert "| a | a \\| b | does not work | why |" in page
    assert "| b | torch 2.13.0, a 1 | 3.11.7 |" in page


def test_the_page_in_the_repository_is_that_of_the_evidence() -> None:
    layout = Layout(ROOT)
    page = (ROOT / ecosystem_evidence.PAGE).read_text(encoding="utf-8")
    assert page == ecosystem_evidence.page(layout), "run ./dev docs"
    rows = json.loads(_evidence(layout).read_text(encoding="utf-8"))
    assert set(rows) == {row.script for row in ecosystem.ROWS}


def test_a_package_that_cannot_be_installed_is_a_row(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def install(self: EcosystemEnvironment, packages: tuple[str, ...], name: str) -> None:
        if name == "timm_models":
            raise ecosystem.StepError("no such wheel")

    def run(command: list[str], **options: Any) -> int:
        ran.append(command[3])
        Path(command[-1]).write_text(json.dumps(_result()), encoding="utf-8")
        return 0

    monkeypatch.setattr(ecosystem.bootstrap, "prepare", lambda *words: None)
    monkeypatch.setattr(ecosystem.build, "inputs", lambda environment: "the core")
    monkeypatch.setattr(EcosystemEnvironment, "make", lambda self: self.work.mkdir(parents=True))
    monkeypatch.setattr(EcosystemEnvironment, "install", install)
    monkeypatch.setattr(ecosystem.process, "run", run)
    assert ecosystem.main(environment, ["timm_models", "peft_lora"], False) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 1 failed"
    assert ran == ["ci.ecosystem.peft_lora"]
    # What went well is not run again; what did not is.
    monkeypatch.setattr(EcosystemEnvironment, "make", lambda self: None)
    monkeypatch.setattr(EcosystemEnvironment, "install", lambda self, packages, name: None)
    assert ecosystem.main(environment, ["timm_models", "peft_lora"], False) == 0
    assert ran == ["ci.ecosystem.peft_lora", "ci.ecosystem.timm_models"]
