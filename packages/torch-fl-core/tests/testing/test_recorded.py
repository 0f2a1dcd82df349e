"""Owns: tests of recorded evidence of comparisons: with the device underneath, and of programs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from torch_fl.cli.main import main
from torch_fl.testing import evidence_files, side_by_side, side_by_side_evidence
from torch_fl.testing.evidence_files import EvidenceError
from torch_fl.testing.harness.results import Header, ResultFile, UnitResult, read
from torch_fl.testing.programs import __main__ as command
from torch_fl.testing.programs import registry
from torch_fl.testing.programs.record import Record

if TYPE_CHECKING:
    from pathlib import Path

CASES = ("sample 0", "sample 1", "sample 2", "sample 3")


def _file(path: Path, device: str, marks: str, suite: str = "op_db", **changed: Any) -> Path:
    """A run of "add" and "mul": `marks` are the fingerprints of the cases of "add"."""
    header = Header(
        device=device,
        plugin="other" if device == "flagos:0" else device,
        plugin_version="1.2" if device == "flagos:0" else "",
        kind="hardware",
        tier="ci",
        torch="2.13.0+x",
        python="3.12.3",
        machine="x86_64",
        seed=1,
        configurations=("plain",),
        passes={"plain": {suite: ("forward",)}},
        entries={suite: ("add", "mul")},
        fingerprints=True,
        date="2026-01-02",
        device_name="Accelerator 1",
    )
    file = ResultFile(path, replace(header, **changed), resume=False)
    prints = {
        case: ("-" if mark == "-" else "+") + mark for case, mark in zip(CASES, marks, strict=True)
    }
    file.append(UnitResult("add", "forward", suite, "plain", passed=4, fingerprints=prints))
    file.append(UnitResult("mul", "forward", suite, "plain"))
    file.close()
    return path


def _record(folder: Path, device: Path, *natives: Path) -> Path:
    runs = side_by_side.load([device], natives)
    return side_by_side_evidence.record(folder, runs, side_by_side.compare(runs))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Runs where of four cases one fails, one varies, one is not equal and one is."""
    return {
        "flagos": _file(tmp_path / "flagos", "flagos:0", "-xya"),
        "native": _file(tmp_path / "native", "device:0", "abca"),
        "again": _file(tmp_path / "again", "device:0", "adca"),
    }


def test_a_comparison_is_recorded_by_the_command(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "evidence"
    words = ["--merge", files["flagos"], "--against", files["native"], files["again"]]
    assert main(["conformance", *map(str, words), "--record", str(folder)]) == 1
    path = folder / "other" / "2.13.0-hardware-against-device.json"
    assert f"recorded in {path}\n" in capsys.readouterr().out
    assert json.loads(path.read_text()) == {
        "format": 1,
        "plugin": "other",
        "kind": "hardware",
        "torch": "2.13.0+x",
        "native": "device",
        "against": {
            "op_db": {
                "date": "2026-01-02",
                "tier": "ci",
                "plugin_version": "1.2",
                "python": "3.12.3",
                "machine": "x86_64",
                "device_name": "Accelerator 1",
                "native_runs": 2,
                "native": 4,
                "passed": 3,
                "equal": 1,
                "varying": 1,
                "failed": 1,
                "unequal": 1,
                "failed_cases": ["add forward sample 0"],
                "unequal_cases": ["add forward sample 2"],
            }
        },
    }


def test_later_comparisons_replace_their_suites_alone(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "evidence"
    _record(folder, files["flagos"], files["native"])
    others = [
        _file(tmp_path / f"module-{device}", device, "abcd", "module_db")
        for device in ("flagos:0", "device:0")
    ]
    _record(folder, *others)
    later = {"date": "2026-02-03"}
    unlike = _file(tmp_path / "unlike", "flagos:0", "wxyz", "module_db", **later)
    monkeypatch.setattr(side_by_side_evidence, "NAMED", 3)
    path = _record(folder, unlike, others[1])
    suites = json.loads(path.read_text())["against"]
    assert suites["op_db"]["date"] == "2026-01-02"
    assert (suites["module_db"]["date"], suites["module_db"]["native_runs"]) == ("2026-02-03", 1)
    assert suites["module_db"]["unequal"] == 4
    assert len(suites["module_db"]["unequal_cases"]) == 3, "so many are named"


def test_parts_and_other_devices_are_no_evidence(files: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "evidence"
    with pytest.raises(EvidenceError, match=r"on flagos .* not device against device"):
        _record(folder, files["native"], files["again"])
    with pytest.raises(EvidenceError, match="not flagos against flagos, device"):
        _record(folder, files["flagos"], files["flagos"], files["native"])
    with pytest.raises(EvidenceError, match="nothing passes natively in op_db"):
        _record(folder, files["flagos"], _file(tmp_path / "failing", "device:0", "----"))
    for name in ("flagos", "native"):
        cut = dict(files)
        lines = files[name].read_text().splitlines(keepends=True)
        cut[name] = tmp_path / f"cut-{name}"
        cut[name].write_text("".join(lines[:-1]))
        with pytest.raises(EvidenceError, match="only whole suites"):
            _record(folder, cut["flagos"], cut["native"], cut["again"])
    assert not folder.exists()


def test_a_file_that_is_no_such_evidence_is_left_alone(
    files: dict[str, Path], tmp_path: Path
) -> None:
    path = evidence_files.location(tmp_path, "other", "2.13.0+x", "hardware-against-device")
    head = {"plugin": "other"}
    for text, message in (
        ("[", "is no evidence"),
        (json.dumps({"format": 1, **head, "runs": {}}), "is no evidence: 'against'"),
        (json.dumps({"format": 0, **head, "against": {}}), "of another format"),
    ):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        with pytest.raises(EvidenceError, match=message):
            _record(tmp_path, files["flagos"], files["native"])
        assert path.read_text() == text


def test_the_name_of_the_device_is_in_real_results(tmp_path: Path) -> None:
    import torch

    words = "conformance --suite optim_db --ops SGD --passes errors --configuration plain"
    words += f" --workers 1 --out {tmp_path / 'run.jsonl'}"
    assert main(words.split()) == 0
    header, _ = read(tmp_path / "run.jsonl")
    assert header.device_name == torch.get_device_module("flagos").get_device_name() != ""


BUILD = {
    "native": "device",
    "build": "1",
    "plugin": "other",
    "plugin_version": "1.2",
    "device": "Accelerator 1",
    "torch": "2.13.0+x",
    "python": "3.12.3",
    "machine": "x86_64",
}


def _outcomes(path: Path, leave_out: int = 0) -> Path:
    record = Record(path)
    record.begin(BUILD)
    names = sorted(registry.load())
    for position, name in enumerate(names[leave_out:]):
        outcome = {0: "close", 1: "skipped", 2: "varies natively"}.get(position, "equal")
        entry = {"outcome": outcome, "as_expected": position != 0, "detail": "why", "worst": 0.0}
        times = {"compared": 3, "seconds": [0.1, 0.2], "peaks": [1, 2]}
        record.keep(name, {**entry, **times, "date": f"2026-01-0{2 + position % 2}"})
    return path


def test_programs_are_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, folder = _outcomes(tmp_path / "programs.json"), tmp_path / "evidence"
    words = ["--json", str(file), "--kept", "--record", str(folder), "--kind", "emulated"]
    assert command.main(words) == 1
    path = folder / "other" / "2.13.0-emulated-programs.json"
    said = capsys.readouterr().out
    assert f"recorded in {path}\n" in said
    first, _, third, *rest = sorted(registry.load())
    assert said.endswith(f"not as they should be: {first}\n")
    data = json.loads(path.read_text())
    assert (data["plugin"], data["kind"], data["native"]) == ("other", "emulated", "device")
    found = data["programs"]
    assert (found["date"], found["device_name"]) == ("2026-01-03", "Accelerator 1")
    assert found["outcomes"] == {
        "equal": len(rest),
        "skipped": 1,
        "varies natively": 1,
        "close": 1,
    }
    assert found["named"] == {
        first: {"outcome": "close", "as_expected": False, "detail": "why"},
        third: {"outcome": "varies natively", "as_expected": True, "detail": "why"},
    }
    assert command.main(words[:-2]) == 1
    assert (folder / "other" / "2.13.0-hardware-programs.json").exists()


def test_a_part_of_the_programs_is_no_evidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "evidence"

    def refusal(*words: str) -> str:
        assert command.main([*words, "--record", str(folder)]) == 2
        return capsys.readouterr().err

    assert "need --json FILE" in refusal("--kept")
    assert "there is no" in refusal("--kept", "--json", str(tmp_path / "none"))
    part = _outcomes(tmp_path / "part.json", leave_out=2)
    assert "2 have no outcome, such as" in refusal("--kept", "--json", str(part))

    mixed = Record(_outcomes(tmp_path / "mixed.json"))
    mixed.begin({**BUILD, "build": "2"})
    name = sorted(registry.load())[0]
    mixed.keep(name, {**mixed.programs[name], "build": "/".join({**BUILD, "build": "2"}.values())})
    said = refusal("--kept", "--json", str(tmp_path / "mixed.json"))
    assert "several builds or machines" in said
    assert not folder.exists()
