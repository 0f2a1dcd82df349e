"""Owns: scripts with "cuda" written into them, run as they are."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from migrate import scripts
from torch import nn

import torch_fl
from torch_fl.migrate import __main__ as runner


@pytest.mark.parametrize("source", [scripts.TRAINING, scripts.AMP, scripts.LOADING])
def test_script(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings(), torch_fl.migrate() as migration:
        warnings.simplefilter("ignore", FutureWarning)  # torch.cuda.amp, as on CUDA
        scripts.run(source, tmp_path)
    assert "on" in capsys.readouterr().out.split()[1]
    assert migration.rewrites
    assert not migration.limits


def test_script_fails_outside(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        scripts.run(scripts.TRAINING, tmp_path)


def test_report(tmp_path: Path) -> None:
    with torch_fl.migrate() as migration:
        scripts.run(scripts.TRAINING, tmp_path)
    rows = {row.name: row for row in migration.rewrites}
    assert rows["torch.cuda.synchronize"].count == 1
    assert rows["torch.cuda.is_available"].count == 2
    assert rows["torch.randn(device='cuda')"].sites == (f"{tmp_path}/script.py:11",)
    assert rows["torch.Tensor.cuda()"].count == 4
    assert rows["torch.load('cuda:0')"].count == 4
    assert rows["torch.Tensor.is_cuda"].count == 3
    assert migration.rewrites[0].count == max(row.count for row in migration.rewrites)
    assert "torch.cuda.synchronize" in migration.table()


def test_sites_are_the_first_distinct_ones() -> None:
    with torch_fl.migrate() as migration:
        for _ in range(100):
            torch.zeros(1, device="cuda")
        torch.zeros(1, device="cuda")
    (row,) = migration.rewrites
    assert (row.name, row.count) == ("torch.zeros(device='cuda')", 101)
    assert len(row.sites) == 1  # a long loop is not looked into for ever


def test_data_parallel() -> None:
    with torch_fl.migrate():
        model = nn.DataParallel(nn.Linear(2, 2).cuda(), device_ids=["cuda:0"])
        assert model(torch.ones(3, 2)).is_cuda  # inputs are moved, as by CUDA


RUNNER = [sys.executable, "-m", "torch_fl.migrate"]


def test_command_line(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, subprocess, torch\n"
        "print(sys.argv[1:], torch.ones(2, device='cuda').device.type)\n"
        "if str(torch.ones(1).device) == 'cuda:0': raise SystemExit('never')\n"
        "code = 'import torch; print(torch.zeros(1).cuda().device.type)'\n"
        "subprocess.run([sys.executable, '-c', code], check=True)\n"
        "raise SystemExit(3)\n",
        encoding="utf-8",
    )
    report = tmp_path / "report.txt"
    line = [*RUNNER, "--report", str(report), str(script), "--epochs", "1"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 3, done.stderr
    assert sorted(done.stdout.splitlines()) == ["['--epochs', '1'] flagos", "flagos"]
    text = report.read_text(encoding="utf-8")
    assert f"{script}:2" in text
    assert "a device compared with 'cuda'" in text
    assert f"{script}:3" in text


def test_command_line_without_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        runner.main([])
    assert end.value.code == 2
    assert "name a script" in capsys.readouterr().err


def test_marks_for_nvidias_profiler() -> None:
    with torch_fl.migrate() as migration, torch.profiler.profile() as profile:
        torch.cuda.profiler.start()
        assert torch.cuda.nvtx.range_push("outer") == 0
        assert torch.cuda.nvtx.range_push("inner") == 1
        x = torch.ones(2, device="cuda")
        assert torch.cuda.nvtx.range_pop() == 1
        assert torch.cuda.nvtx.range_pop() == 0
        assert torch.cuda.nvtx.range_pop() == -1
        with torch.cuda.nvtx.range("step {}", 3):
            number = torch.cuda.nvtx.range_start("open")
            x += 1
        torch.cuda.nvtx.range_end(number)
        torch.cuda.nvtx.range_end(number)
        torch.cuda.nvtx.mark("here")
        with torch.cuda.profiler.profile():
            x += 1
        torch.cuda.profiler.stop()
    names = {event.name for event in profile.events()}
    assert {"outer", "inner", "step 3", "open", "here"} <= names
    assert {"torch.cuda.nvtx", "torch.cuda.profiler"} <= {row.name for row in migration.rewrites}
