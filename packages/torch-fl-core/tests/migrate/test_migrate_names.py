"""Owns: which names a migration rewrites, and which it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from migrate import scripts
from torch import nn

import torch_fl
from torch_fl.migrate import limits

CUDA = torch.device("cuda", 0)  # made before any migration


def test_devices() -> None:
    with torch_fl.migrate():
        assert torch.device("cuda") == torch.device("flagos")
        assert torch.device("cuda:1") == torch.device("flagos:1")
        assert torch.device("cuda", 1) == torch.device("flagos", 1)
        assert torch.device(type="cuda", index=0) == torch.device("flagos", 0)
        with torch.device("cuda"):
            assert torch.ones(1).is_cuda


@pytest.mark.parametrize("device", ["cuda", "cuda:0", CUDA])
def test_tensors_and_modules(device: torch.device | str) -> None:
    with torch_fl.migrate():
        x = torch.zeros(2)
        made = [
            torch.empty(2, device=device),
            torch.tensor([1.0], device=device),
            torch.as_tensor([1.0], device=device),
            torch.arange(3, device=device),
            torch.zeros_like(x, device=device),
            x.new_ones(2, device=device),
            x.to(device),
            x.to(device, torch.float16),
            x.to(device=device, non_blocking=True),
            x.cuda(device),
            torch.ops.aten.zeros.default([1], device=device),
            *nn.Linear(2, 2, device=device).parameters(),
            *nn.Linear(2, 2).to(device).parameters(),
            *nn.Linear(2, 2).cuda(device).parameters(),
            nn.utils.rnn.pack_sequence([x]).to(device).data,
        ]
        assert all(tensor.is_cuda for tensor in made)
        assert {tensor.device for tensor in made} == {torch.device("flagos", 0)}
        assert not x.is_cuda


def test_cuda_method() -> None:
    with torch_fl.migrate():
        x = torch.zeros(2, 3, 1, 1)
        assert x.cuda(0).device == torch.device("flagos", 0)
        assert x.cuda(device=0, non_blocking=True).is_cuda
        moved = x.cuda(memory_format=torch.channels_last)
        assert moved.is_contiguous(memory_format=torch.channels_last)
        on_device = x.cuda()
        assert on_device.cuda() is on_device
        with pytest.raises(RuntimeError, match="must be cuda device"):
            x.cuda("cpu")
        with pytest.raises(RuntimeError):
            x.cuda(torch.cuda.device_count())


def test_module_of_devices() -> None:
    with torch_fl.migrate():
        for device in (None, 0, "cuda", "cuda:0", CUDA):
            torch.cuda.synchronize(device)
            assert torch.cuda.get_device_name(device)
        torch.cuda.set_device(CUDA)
        with torch.cuda.device(CUDA), torch.cuda.device("cuda:0"), torch.cuda.device(0):
            assert torch.cuda.current_device() == 0
        assert isinstance(torch.cuda.current_stream(), torch.cuda.Stream)
        assert isinstance(torch.cuda.current_stream(), torch.Stream)
        assert torch.Stream("cuda").device.type == "flagos"
        assert torch.Event("cuda").device.type == "flagos"
        with torch.random.fork_rng([0], device_type="cuda"):
            torch.cuda.manual_seed(3)
        assert issubclass(torch.cuda.OutOfMemoryError, RuntimeError)


def test_libraries_see_flagos_and_pytorch_sees_the_truth() -> None:
    with torch_fl.migrate():
        names = {"__name__": "somebody", "torch": torch}
        assert eval("torch.cuda.is_available()", names)
        names["__name__"] = "torch.somewhere"
        assert not eval("torch.cuda.is_available()", names)


def test_what_flagos_has_not() -> None:
    """Types are named in annotations; functions say so when they are called."""
    with torch_fl.migrate() as migration:
        torch.cuda.__dict__["_torch_fl_real"].only_cudas = lambda: 1
        try:
            with pytest.raises(NotImplementedError, match="no counterpart"):
                torch.cuda.only_cudas()
        finally:
            del torch.cuda.only_cudas
        assert not hasattr(torch.cuda, "only_cudas")
        assert not hasattr(torch.cuda, "no_such_name")
    assert [row.name for row in migration.limits] == ["torch.cuda.only_cudas"]


def test_strings_that_are_no_devices() -> None:
    with torch_fl.migrate() as migration:
        x = torch.ones(1, 2, 3, 1)
        assert torch.einsum("cuda", x).shape == (1, 1, 3, 2)  # "acdu": a 1, c 1, d 3, u 2
        assert torch.einsum("cuda->au", x).shape == (1, 2)
        with pytest.raises(RuntimeError):
            torch.zeros(1, device="cudax")
        with pytest.raises(RuntimeError):
            torch.zeros(1, device="cuda:")
    assert not migration.rewrites


def test_checkpoints(tmp_path: Path) -> None:
    """A file keeps its true location; one that says "cuda" is read onto flagos."""
    path = tmp_path / "x.pt"
    with torch_fl.migrate():
        torch.save(torch.arange(3, device="cuda"), path)
        for place in ("cuda", "cuda:0", CUDA, {"flagos:0": "cuda:0"}):
            assert torch.load(path, map_location=place).is_cuda
        assert torch.load(path, map_location=lambda storage, _: storage.cuda()).is_cuda
    assert torch.load(path).device.type == "flagos"


def test_checkpoints_of_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.pt"
    with monkeypatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
        torch.save(torch.arange(3), path)
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.load(path)
    with torch_fl.migrate() as migration:
        assert torch.load(path).device == torch.device("flagos", 0)
        assert torch.load(path, map_location={"cuda:0": "cpu"}).device.type == "cpu"
    assert [row.name for row in migration.rewrites] == ["torch.load('cuda:0')"]


def test_legacy_types() -> None:
    with torch_fl.migrate():
        half = torch.zeros(2).type("torch.cuda.HalfTensor")
        assert half.is_cuda
        assert half.dtype is torch.float16


def test_version_is_noted() -> None:
    with torch_fl.migrate() as migration:
        assert torch.version.cuda is None
        assert torch.version.__version__ == torch.__version__
    assert [row.name for row in migration.limits] == ["torch.version.cuda"]


def test_kernels_that_ask_for_cuda_are_noted() -> None:
    def only_cuda(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("x must be a CUDA tensor")

    library = torch.library.Library("test_migrate", "DEF")
    library.define("only_cuda(Tensor x) -> Tensor")
    library.impl("only_cuda", only_cuda, "PrivateUse1")
    with torch_fl.migrate() as migration, pytest.raises(RuntimeError, match="CUDA tensor"):
        torch.ops.test_migrate.only_cuda(torch.ones(1, device="cuda"))
    (row,) = migration.limits
    assert "test_migrate" in row.name
    assert "extension" in row.advice


def test_backward_runs_inside() -> None:
    seen: list[bool] = []
    with torch_fl.migrate():
        x = torch.ones(2, device="cuda", requires_grad=True)
        x.register_hook(lambda grad: seen.append(torch.zeros(1, device="cuda").is_cuda))
        (x * 2).sum().backward()
        torch.autograd.grad((x * 3).sum(), x)
    assert seen == [True, True]


LIMITS = """
if x.device.type == "cuda": ...
if "cuda" in str(device): ...
if device.type in ("cuda", "xpu"): ...
if str(x.device).startswith("cuda"): ...
print(torch.version.cuda)
load_inline(cuda_sources=[])
CUDAExtension("a", [])
dist.init_process_group("nccl")
x = mode == "cuda"
"""


def test_limits_found_in_the_text() -> None:
    found = [(int(site.rpartition(":")[2]), name) for name, _, site in limits.find(LIMITS, "a.py")]
    assert sorted(found) == [
        (2, "a device compared with 'cuda'"),
        (3, "a device compared with 'cuda'"),
        (4, "a device compared with 'cuda'"),
        (5, "a device compared with 'cuda'"),
        (6, "torch.version.cuda"),
        (7, "cuda_sources"),
        (8, "CUDAExtension"),
        (9, "the backend 'nccl'"),
    ]
    assert list(limits.find("def (", "a.py")) == []
    assert not [name for name, *_ in limits.find(scripts.TRAINING, "a.py")]


def test_autocasts_questions_without_a_device() -> None:
    before = torch.get_autocast_dtype("cuda")
    with torch_fl.migrate() as migration:
        assert torch.is_autocast_enabled() is False
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert torch.is_autocast_enabled() is True
            assert torch.get_autocast_gpu_dtype() is torch.bfloat16
        x = torch.ones(4, 4).cuda()
        dtype = torch.get_autocast_gpu_dtype()
        try:
            torch.set_autocast_enabled(True)
            torch.set_autocast_gpu_dtype(torch.bfloat16)
            assert (x @ x).dtype is torch.get_autocast_dtype("cuda") is torch.bfloat16
        finally:
            torch.set_autocast_enabled(False)
            torch.set_autocast_gpu_dtype(dtype)
        assert torch.is_autocast_enabled("cpu") is False
    assert any("is_autocast_enabled" in row.name for row in migration.rewrites)
    assert torch.get_autocast_dtype("cuda") is before
    assert torch.is_autocast_enabled() is False
