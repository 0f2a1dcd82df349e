"""Owns: tests of fingerprints, and of a backend's run against the device that it stands on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from children import output_of_child

from torch_fl.cli.main import main
from torch_fl.testing import side_by_side
from torch_fl.testing.harness.call import Outcome
from torch_fl.testing.harness.fingerprints import fingerprint
from torch_fl.testing.harness.results import ResultError


def _print(result: Any, *, values: bool = True) -> str:
    return fingerprint(Outcome(result, [], [], [], []), values=values)


def test_equal_bits_are_equal() -> None:
    x = torch.tensor([1.0, float("nan"), -0.0])
    assert _print(x) == _print(x.clone()) == _print(x.to("flagos"))
    assert _print([x, {"a": 1}]) == _print([x.to("flagos"), {"a": 1}])
    assert _print(torch.ones(2, 1)[:, 0][:1]) == _print(torch.ones(2, 1)[:, 0][:1].to("flagos"))
    for special in (x.to_sparse(), torch.eye(3).to_sparse_csr(), torch.ones(2) * 1j):
        assert _print(special) == _print(special.to("flagos"))
    assert _print((1j * torch.ones(2)).conj()) == _print((1j * torch.ones(2)).to("flagos").conj())


@pytest.mark.parametrize(
    "other",
    [
        torch.tensor([1.0, 2.0, 0.0]),  # the sign of zero
        torch.tensor([1.0, 2.0000002, -0.0]),
        torch.tensor([1.0, 2.0, -0.0], dtype=torch.float64),
        torch.tensor([[1.0, 2.0, -0.0]]),
        torch.tensor([[1.0, 2.0, -0.0], [0, 0, 0]]).T.contiguous().T[0],
        torch.tensor([1.0, 2.0, -0.0], requires_grad=True),
        [torch.tensor([1.0, 2.0, -0.0])],
    ],
)
def test_anything_else_is_not(other: Any) -> None:
    assert _print(torch.tensor([1.0, 2.0, -0.0])) != _print(other)


def test_undefined_memory_is_left_out() -> None:
    assert _print(torch.ones(2), values=False) == _print(torch.zeros(2), values=False)
    assert _print(torch.ones(2), values=False) != _print(torch.zeros(3), values=False)


def _compare(device: list[Path], native: list[Path]) -> dict[str, side_by_side.Score]:
    return side_by_side.compare(side_by_side.load(device, native))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Real runs of a few entries, on flagos and on the CPU itself."""
    folder = tmp_path_factory.mktemp("runs")
    files = {device: folder / f"{device}.jsonl" for device in ("flagos", "cpu")}
    for device, file in files.items():
        words = (
            "conformance --suite op_db --ops add,nn.functional.dropout,randn --passes forward,grad"
        )
        words += f" --configuration plain --workers 1 --fingerprints --device {device} --out {file}"
        assert main(words.split()) == 0
    return files


def test_the_host_backend_is_the_cpu(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["conformance", "--merge", str(runs["flagos"]), "--against", str(runs["cpu"])]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert said.endswith("1 passed, 0 failed\n")
    scores = _compare([runs["flagos"]], [runs["cpu"], runs["cpu"]])
    score = scores["op_db"]
    assert score.native == score.passed == score.equal > 50


def _changed(path: Path, folder: Path, change: Any) -> Path:
    """A copy of a run in which `change` was applied to every unit's fingerprints."""
    header, *units = (json.loads(line) for line in path.read_text().splitlines())
    for unit in units:
        unit["fingerprints"] = {case: change(mark) for case, mark in unit["fingerprints"].items()}
    changed = folder / f"changed-{len(list(folder.iterdir()))}.jsonl"
    changed.write_text("".join(json.dumps(line) + "\n" for line in (header, *units)))
    return changed


def test_what_differs_is_named(runs: dict[str, Path], tmp_path: Path) -> None:
    other = _changed(runs["flagos"], tmp_path, lambda mark: mark[:-1] + "x")
    score = _compare([other], [runs["cpu"]])["op_db"]
    assert score.passed == score.native
    assert not score.ok
    assert score.unequal[0].startswith("add forward torch.float32")
    lines = side_by_side.lines({"op_db": score})
    assert "NOT OK" in lines[1]
    assert "more" in lines[-1]

    failing = _changed(runs["flagos"], tmp_path, lambda mark: "-" + mark[1:])
    score = _compare([failing], [runs["cpu"]])["op_db"]
    assert (score.passed, score.ok) == (0, False)
    assert len(score.failed) == score.native

    # What fails natively, and what differs between native runs, need not be equal.
    score = _compare([runs["flagos"]], [failing])["op_db"]
    assert (score.native, score.ok) == (0, False), "nothing was compared"
    varying = _changed(runs["cpu"], tmp_path, lambda mark: mark[:-1] + "y")
    score = _compare([other], [runs["cpu"], varying])["op_db"]
    assert score.varying == score.native == score.passed
    assert score.ok


def test_runs_that_do_not_belong_together_are_refused(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    header, *rest = runs["cpu"].read_text().splitlines()
    for key, value, text in (("seed", 7, "one seed"), ("fingerprints", False, "--fingerprints")):
        data = json.loads(header)
        data["header"][key] = value
        other = tmp_path / f"{key}.jsonl"
        other.write_text("\n".join([json.dumps(data), *rest]) + "\n")
        with pytest.raises(ResultError, match=text):
            _compare([runs["flagos"]], [other])
    named = {}
    for device, name in (("flagos", "one"), ("cpu", "another")):
        header, *rest = runs[device].read_text().splitlines()
        data = json.loads(header)
        data["header"]["device_name"] = name
        named[device] = tmp_path / f"{name}.jsonl"
        named[device].write_text("\n".join([json.dumps(data), *rest]) + "\n")
    with pytest.raises(ResultError, match="unlike devices, one and another"):
        _compare([named["flagos"]], [named["cpu"]])
    assert main(["conformance", "--against", str(runs["cpu"])]) == 2


def test_a_native_process_has_no_flagos() -> None:
    code = """
    import torch, torch_fl_entry
    torch_fl_entry.natively("torch_fl.testing.running", "Request")
    print(torch._C._get_privateuse1_backend_name(), torch.accelerator.is_available())
    """
    assert output_of_child(code, FLAGOS_AUTOLOAD="0").split() == ["privateuseone", "False"]
