"""Owns: tests of the hooks' values, and of the plugin as the core sees it when it is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from choices import WITHOUT_ACTIVATION
from pretend_machine import PretendMachine

from torch_fl.plugins.spec import DelegateRuntime
from torch_fl_cuda import __version__, installed, plugin

SOURCES = Path(__file__).parents[1] / "src"
ENTRY_POINTS = "[torch_fl.plugins]\ncuda = torch_fl_cuda.plugin\n"

needs_no_cuda = pytest.mark.skipif(
    torch.version.cuda is not None, reason="the refusal of a PyTorch without CUDA"
)


@pytest.fixture
def gpu(tmp_path: Path) -> PretendMachine:
    machine = PretendMachine(tmp_path / "machine")
    machine.pci(0x10DE, 0x2330, 0x030200)
    machine.nodes("nvidia0", "nvidiactl")
    return machine


def _python(code: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`code` in a process in which the plugin is installed."""
    info = tmp_path / "site" / f"torch_fl_cuda-{__version__}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: torch-fl-cuda\nVersion: {__version__}\n"
    )
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    path = os.pathsep.join([str(info.parent), str(SOURCES)])
    variables = {**os.environ, "PYTHONPATH": path, **environment}
    variables.pop("CUDA_VISIBLE_DEVICES", None)
    return subprocess.run(
        [sys.executable, "-c", code],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_entry_point_is_the_one_tested() -> None:
    project = (SOURCES.parent / "pyproject.toml").read_text()
    group, entry = ENTRY_POINTS.split("\n")[:2]
    name, target = entry.split(" = ")
    assert f'[project.entry-points."{group[1:-1]}"]\n{name} = "{target}"' in project


def test_importing_it_imports_neither_torch_nor_cuda(tmp_path: Path) -> None:
    done = _python(
        f"{WITHOUT_ACTIVATION}\n"
        "import torch_fl_cuda.plugin as p; p.torch_fl_identity(); p.torch_fl_routes()\n"
        "print([m for m in sys.modules if m.partition('.')[0] in ('torch', 'triton', 'ctypes')])",
        tmp_path,
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_what_it_says_of_itself() -> None:
    assert plugin.torch_fl_target_module() == "torch.cuda"
    target = plugin.torch_fl_triton_target()
    assert (target.backend, target.cuda_like, target.cudagraphs) == ("cuda", True, True)
    (profile,) = plugin.torch_fl_routes().profiles.values()
    assert profile.is_file()
    versions = plugin.torch_fl_environment()
    assert versions["CUDA of PyTorch"] == (torch.version.cuda or "none")


def test_the_drivers_version(tmp_path: Path) -> None:
    file = tmp_path / "version"
    assert installed.driver(file) == "not loaded"
    file.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release\n")
    assert installed.driver(file) == "570.86.15"
    file.write_text("something else\n")
    assert installed.driver(file) == "something else"


def test_builds_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert plugin.torch_fl_runtime() == DelegateRuntime("cuda", foreach_takes_any_device=True)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    with pytest.raises(ValueError, match=r"ROCm 6\.4"):
        plugin.torch_fl_runtime()


@needs_no_cuda
def test_a_gpu_and_a_pytorch_without_cuda(gpu: PretendMachine, tmp_path: Path) -> None:
    done = _python(
        "import torch, torch_fl\n"
        "print(torch.flagos.is_available())\n"
        "try: torch.ones(2, device='flagos')\n"
        "except RuntimeError as error: print(error)\n"
        "print(torch.ones(2).sum())",
        tmp_path,
        FLAGOS_DEVICE_ROOT=str(gpu.root),
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "False", done.stderr
    assert "was built without CUDA" in done.stdout
    assert "FLAGOS_PLUGIN=host" in done.stdout
    assert lines[-1] == "tensor(2.)"  # the process goes on


def test_the_doctor_has_a_row_for_it(gpu: PretendMachine, tmp_path: Path) -> None:
    code = "import sys, torch_fl_entry; sys.argv[1:] = ['plugins', '--json']; torch_fl_entry.main()"
    for root, found in ((gpu.root, True), (tmp_path, False)):
        done = _python(code, tmp_path, FLAGOS_DEVICE_ROOT=str(root))
        report = json.loads(done.stdout)
        (row,) = [each for each in report["plugins"] if each["name"] == "cuda"]
        assert row["detection"]["found"] is found
        assert row["version"] == __version__
        assert row["ms"] < 1000


def test_without_a_gpu_the_host_is_used(tmp_path: Path) -> None:
    done = _python(
        "import torch, torch_fl; print(torch.ones(2, device='flagos').sum().item())",
        tmp_path,
        FLAGOS_DEVICE_ROOT=str(tmp_path),
    )
    assert done.stdout.strip() == "2.0", done.stderr


@pytest.mark.parametrize("name", ["ForeachUtils.h", "cuda/MultiTensorApply.cuh"])
def test_kernels_over_lists_ask_nothing_of_the_devices_type(name: str) -> None:
    """What `foreach_takes_any_device` says of them, in the headers that PyTorch comes with."""
    file = Path(torch.__file__).parent / "include/ATen/native" / name
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    for question in ("is_cuda", "DeviceType", "device_type", "kCUDA", "CUDAGuard"):
        assert question not in "".join(lines)
