"""Checkpoints: every map_location, both file formats, mmap, views and ties, other packers."""

from __future__ import annotations

import copy
import io
import pickle
from typing import TYPE_CHECKING, Any

import pytest
import torch
from children import output_of_child, run_child
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FLAGOS = torch.device("flagos", 0)
CPU = torch.device("cpu")


def saved(thing: Any, *, zipped: bool = True) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(thing, file, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    return file


def views_on(device: str | torch.device) -> dict[str, torch.Tensor]:
    whole = torch.arange(12.0, device=device).view(3, 4)
    return {"whole": whole, "rows": whole[1:], "turned": whole.t(), "again": whole}


PLACES: dict[str, tuple[Any, str | None]] = {
    "none": (None, None),
    "cpu": ("cpu", "cpu"),
    "flagos": ("flagos", "flagos"),
    "with an index": ("flagos:0", "flagos"),
    "a device": (FLAGOS, "flagos"),
    "a dict to the CPU": ({"flagos:0": "cpu"}, None),
    "a dict to flagos": ({"cpu": "flagos:0"}, None),
    "a function that keeps the CPU's": (lambda storage, _: storage, "cpu"),
    "a function that moves": (lambda storage, _: storage.flagos(), "flagos"),
    "a function that passes": (lambda *_: None, None),
}
MOVED_BY_DICT = {
    ("a dict to the CPU", "flagos"): "cpu",
    ("a dict to flagos", "cpu"): "flagos",
}


SPARSE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "coo": lambda x: x.to_sparse(),
    "coo, not coalesced": lambda x: torch.sparse_coo_tensor(
        torch.zeros(2, 3, dtype=torch.int64, device=x.device),
        torch.ones(3, device=x.device),
        (4, 4),
    ),
    "csr": lambda x: x.to_sparse_csr(),
    "csc": lambda x: x.to_sparse_csc(),
    "bsr": lambda x: x.to_sparse_bsr((2, 2)),
    "bsc": lambda x: x.to_sparse_bsc((2, 2)),
}


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("layout", SPARSE)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors(layout: str, zipped: bool, weights_only: bool) -> None:
    for source in ("flagos", "cpu"):
        x = SPARSE[layout](torch.eye(4, device=source))
        for place, (where, fixed) in PLACES.items():
            file = saved(x, zipped=zipped)
            y = torch.load(file, map_location=where, weights_only=weights_only)
            assert y.device.type == (fixed or MOVED_BY_DICT.get((place, source), source))
            assert (y.layout, y.shape) == (x.layout, x.shape)
            if x.layout is torch.sparse_coo:
                assert y.is_coalesced() == x.is_coalesced()
            assert torch.equal(y.cpu().to_dense(), x.cpu().to_dense())


def test_ties_into_a_sparse_tensor() -> None:
    values = torch.ones(2, device=FLAGOS)
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 1]], device=FLAGOS), values, (3,))
    values, sparse = torch.load(saved((values, sparse)))
    values.fill_(9)
    assert sparse._values().tolist() == [9, 9]
    again = pickle.loads(pickle.dumps(sparse))
    assert torch.equal(again.to_dense().cpu(), sparse.to_dense().cpu())
    assert copy.deepcopy(sparse).device == FLAGOS


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("source", ["flagos", "cpu"])
def test_every_map_location(source: str, place: str, zipped: bool, weights_only: bool) -> None:
    where, fixed = PLACES[place]
    expected = fixed or MOVED_BY_DICT.get((place, source), source)
    file = saved(views_on(source), zipped=zipped)
    loaded = torch.load(file, map_location=where, weights_only=weights_only)
    for name, tensor in views_on("cpu").items():
        assert loaded[name].device.type == expected
        assert loaded[name].stride() == tensor.stride()
        assert torch.equal(loaded[name].cpu(), tensor)
    storages = {x.untyped_storage()._cdata for x in loaded.values()}
    assert len(storages) == 1
    loaded["whole"].zero_()
    assert loaded["rows"].sum() == 0


@pytest.mark.parametrize("where", ["cpu", "flagos", None, "meta"])
def test_memory_mapped_files(tmp_path: Path, where: str | None) -> None:
    for source in ("cpu", "flagos"):
        torch.save(views_on(source), tmp_path / "file.pt")
        loaded = torch.load(tmp_path / "file.pt", mmap=True, map_location=where)
        assert loaded["whole"].device.type == (where or source)
        if where != "meta":
            assert torch.equal(loaded["turned"].cpu(), views_on("cpu")["turned"])


def test_a_mapped_state_becomes_a_model(tmp_path: Path) -> None:
    model = nn.Linear(3, 2).to(FLAGOS)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    with torch.device("meta"):
        empty = nn.Linear(3, 2)
    state = torch.load(tmp_path / "model.pt", mmap=True, map_location="cpu")
    empty.load_state_dict(state, assign=True)
    assert torch.equal(empty.to(FLAGOS).weight, model.weight)


def test_ties_hooks_and_types_of_models_stay() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).to(FLAGOS)
    model[1].weight = model[0].weight
    copies: dict[str, Callable[[], Any]] = {
        "save": lambda: torch.load(saved(model), weights_only=False),
        "pickle": lambda: pickle.loads(pickle.dumps(model)),
        "deepcopy": lambda: copy.deepcopy(model),
    }
    for name, make in copies.items():
        again = make()
        assert again[1].weight is again[0].weight, name
        assert isinstance(again[0].weight, nn.Parameter), name
        assert again[0].weight.device == FLAGOS, name
        again[0].weight.data.zero_()
        assert model[0].weight.abs().sum() > 0, name


KINDS: dict[str, Callable[[], torch.Tensor]] = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "csr": lambda: torch.eye(3).to_sparse_csr(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "parameter": lambda: nn.Parameter(torch.ones(2)),
    "conjugate": lambda: torch.ones(2, dtype=torch.complex64).mul(1j).conj(),
    "negative": lambda: torch.ones(2, dtype=torch.complex64).mul(1j).conj().imag,
    "empty": lambda: torch.empty(0, 3),
    "number": lambda: torch.tensor(3),
    "float8": lambda: torch.ones(3).to(torch.float8_e4m3fn),
    "uint16": lambda: torch.ones(3, dtype=torch.uint16),
    "requires grad": lambda: torch.ones(2, requires_grad=True),
    "jagged": lambda: torch.nested.nested_tensor(
        [torch.ones(2), torch.ones(3)], layout=torch.jagged
    ),
}


@pytest.mark.filterwarnings("ignore")  # quantized and compressed tensors warn of themselves
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_tensors_go_both_ways(kind: str) -> None:
    tensor = KINDS[kind]()
    there = tensor.detach().to(FLAGOS).requires_grad_(tensor.requires_grad)
    for source in (tensor, there):
        for where in (CPU, FLAGOS):
            loaded = torch.load(saved(source), map_location=where)
            assert loaded.device == where
            assert loaded.layout == tensor.layout
            assert loaded.dtype == tensor.dtype
            assert loaded.requires_grad == tensor.requires_grad
            assert loaded.shape[0] == tensor.shape[0] if tensor.dim() else loaded.dim() == 0
            if not tensor.is_nested:
                assert repr(loaded.detach().cpu()) == repr(tensor.detach())


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(RuntimeError, match=r"FLAGOS device 7.*device_count\(\) is 1"):
        torch.load(saved(torch.ones(2)), map_location="flagos:7")


def test_generators_and_devices_are_pickled() -> None:
    assert pickle.loads(pickle.dumps(FLAGOS)) == FLAGOS
    generator = torch.Generator("flagos").manual_seed(5)
    again = pickle.loads(pickle.dumps(generator))
    assert again.device == FLAGOS
    assert torch.equal(again.get_state(), generator.get_state())


def test_truncated_and_damaged_files_are_refused_and_cost_nothing() -> None:
    content = saved(views_on("flagos")).getvalue()
    for broken in (content[: len(content) // 2], content[:10], b"", content[:64] + b"?" * 64):
        with pytest.raises((RuntimeError, EOFError, pickle.UnpicklingError)):
            torch.load(io.BytesIO(broken))
    assert torch.load(io.BytesIO(content))["whole"].sum() == 66


def test_other_packers(tmp_path: Path) -> None:
    from torch.package import PackageExporter, PackageImporter

    file = tmp_path / "package.pt"
    with PackageExporter(file) as exporter:
        exporter.save_pickle("things", "x.pkl", views_on("flagos"))
    importer = PackageImporter(file)
    assert importer.load_pickle("things", "x.pkl")["rows"].device == FLAGOS
    assert importer.load_pickle("things", "x.pkl", map_location="cpu")["rows"].device == CPU

    scripted = torch.jit.script(nn.Linear(3, 2).to(FLAGOS))
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer)
    for where, expected in ((None, FLAGOS), ("cpu", CPU), ("flagos", FLAGOS)):
        buffer.seek(0)
        assert torch.jit.load(buffer, map_location=where).weight.device == expected


def test_two_devices_and_no_device(tmp_path: Path) -> None:
    file = tmp_path / "two.pt"
    output_of_child(
        f"""
        import torch, torch_fl
        tensors = [torch.full((2,), float(i), device=f"flagos:{{i}}") for i in range(2)]
        torch.save(tensors, {str(file)!r})
        loaded = torch.load({str(file)!r})
        assert [x.device.index for x in loaded] == [0, 1]
        loaded = torch.load({str(file)!r}, map_location={{"flagos:1": "flagos:0"}})
        assert [x.device.index for x in loaded] == [0, 0] and loaded[1].tolist() == [1, 1]
        loaded = torch.load({str(file)!r}, map_location="flagos:1")
        assert [x.device.index for x in loaded] == [1, 1]
        """,
        FLAGOS_HOST_DEVICES="2",
    )
    with pytest.raises(RuntimeError, match="FLAGOS device 1"):
        torch.load(file)
    assert torch.load(file, map_location="flagos:0")[1].device == FLAGOS
    without = run_child(
        f"""
        import torch
        print([x.device.type for x in torch.load({str(file)!r}, map_location="cpu")])
        torch.load({str(file)!r})
        """,
        FLAGOS_AUTOLOAD="0",
    )
    assert without.stdout.strip() == "['cpu', 'cpu']"
    assert "RuntimeError" in without.stderr
    assert "'flagos:0', but flagos is not active" in without.stderr or (
        # Where the entry point is not installed, PyTorch speaks for itself.
        "tagged with flagos:0" in without.stderr
    )
