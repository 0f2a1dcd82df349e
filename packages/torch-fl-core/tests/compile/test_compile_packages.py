"""Owns: tests of exported programs on flagos, and of AOTInductor's packages of them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from children import output_of_child, run_child
from releases import not_in_old
from torch.export.passes import move_to_device_pass

FLAGOS = "flagos"


class Program(torch.nn.Module):
    """A layer, a buffer that is written to, random numbers, a view, and a tensor on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 16)
        self.register_buffer("shift", torch.arange(16.0))
        self.register_buffer("calls", torch.zeros(16))

    def forward(self, x: torch.Tensor, k: torch.Tensor) -> dict[str, torch.Tensor]:
        self.calls.add_(1)
        y = self.layer(x) + self.shift
        more = {"calls": self.calls, "drawn": torch.rand_like(x), "view": x.view(-1), "cpu": k * 2}
        return {"y": y, **more}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The package of a program on flagos."""
    path = str(tmp_path_factory.mktemp("packages") / "program.pt2")
    arguments = torch.ones(2, 4, device=FLAGOS), torch.ones(3)
    rows = torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(
        Program().to(FLAGOS), arguments, dynamic_shapes={"x": {0: rows}, "k": None}
    )
    assert torch._inductor.aoti_compile_and_package(program, package_path=path) == path
    return path


def test_a_package_takes_and_gives_flagos_tensors(package: str) -> None:
    run = torch._inductor.aoti_load_package(package)
    reference = Program()
    for rows in (2, 5):
        x, k = torch.randn(rows, 4), torch.ones(3)
        ours = x.to(FLAGOS)
        got = run(ours, k)
        assert got.pop("cpu").device.type == "cpu"
        assert {value.device.type for value in got.values()} == {FLAGOS}
        torch.testing.assert_close(got["y"].cpu(), reference(x, k)["y"].detach())
        assert got["view"].data_ptr() == ours.data_ptr()
    assert got["calls"].tolist() == [2] * 16
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(run(ours, k)["drawn"].cpu())
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_a_package_can_be_read_from_memory_and_given_other_constants(package: str) -> None:
    run = torch._inductor.aoti_load_package(io.BytesIO(Path(package).read_bytes()))
    assert "torch_fl" in run.get_metadata()
    weights = {
        name: torch.zeros_like(value)
        for name, value in Program().to(FLAGOS).state_dict().items()
        if name in run.get_constant_fqns()
    }
    assert weights
    run.load_constants(weights, check_full_update=True)
    x, k = torch.randn(2, 4), torch.ones(3)
    want = torch.func.functional_call(
        Program(), {name: value.cpu() for name, value in weights.items()}, (x, k)
    )
    torch.testing.assert_close(run(x.to(FLAGOS), k)["y"].cpu(), want["y"].detach())


def test_tensors_on_other_devices_are_refused(package: str) -> None:
    run = torch._inductor.aoti_load_package(package)
    with pytest.raises(RuntimeError, match=r"Tensor 0 .* is on 'cpu', but was flagos when"):
        run(torch.ones(2, 4), torch.ones(3))
    with pytest.raises(RuntimeError, match=r"Tensor 1 .* is on 'flagos:0', but was not flagos"):
        run(torch.ones(2, 4, device=FLAGOS), torch.ones(3, device=FLAGOS))


def test_a_new_process_needs_torch_fl_for_flagos_operators_only(package: str) -> None:
    said = output_of_child(
        f"""
        import torch, torch_fl
        run = torch._inductor.aoti_load_package({package!r})
        print(run(torch.ones(2, 4, device="flagos"), torch.ones(3))["drawn"].device)
        """
    )
    assert said.strip().endswith("flagos:0")
    child = run_child(
        f"import torch; torch._inductor.aoti_load_package({package!r})", FLAGOS_AUTOLOAD="0"
    )
    assert child.returncode != 0
    assert "torch_fl_eager" in child.stderr


def test_a_package_for_another_device_refuses_flagos_tensors() -> None:
    from torch_fl.compile import packages

    seen: list[Any] = []
    run = packages.bounded(lambda inputs: seen.append(inputs) or [], {"AOTI_DEVICE_KEY": "cpu"}, -1)
    with pytest.raises(RuntimeError, match=r"compiled for 'cpu' and cannot take flagos tensors"):
        run([torch.ones(2), torch.ones(2, device=FLAGOS)])
    assert not seen
    run([torch.ones(2)])
    assert len(seen) == 1


def test_a_package_for_another_backend_is_refused() -> None:
    from torch_fl.compile import packages

    said = '{"devices": [0], "eager": [], "given": [0], "target": "elsewhere"}'
    with pytest.raises(RuntimeError, match="flagos on 'elsewhere', but flagos stands on 'cpu'"):
        packages.prepare({packages.KEY: said}, -1)


@not_in_old("functions cannot be compiled ahead of time")
def test_a_saved_function_is_loaded_in_a_new_process(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).relu()

    path = str(tmp_path / "function")
    x = torch.ones(4, 4, device=FLAGOS)
    run = torch.compile(function, fullgraph=True, backend="flagos").aot_compile(((x,), {}))
    same = run(x)
    assert same.device.type == FLAGOS
    run.save_compiled_function(path)
    said = output_of_child(
        f"""
        import torch, torch_fl
        with open({path!r}, "rb") as file:
            y = torch.compiler.load_compiled_function(file)(torch.ones(4, 4, device="flagos"))
        print(y.device, y.sum().item())
        """
    )
    assert said.split()[-2:] == ["flagos:0", str(same.sum().item())]


@pytest.mark.slow
def test_without_torch_fl_a_package_is_a_program_of_the_target(tmp_path: Path) -> None:
    path = str(tmp_path / "layer.pt2")
    layer = torch.nn.Linear(4, 16).to(FLAGOS)
    x = torch.ones(2, 4)
    program = torch.export.export(layer, (x.to(FLAGOS),))
    torch._inductor.aoti_compile_and_package(program, package_path=path)
    said = output_of_child(
        f"""
        import torch
        y = torch._inductor.aoti_load_package({path!r})(torch.ones(2, 4))
        print(y.device, y.sum().item())
        """,
        FLAGOS_AUTOLOAD="0",
    )
    device, total = said.split()[-2:]
    assert device == "cpu"
    assert float(total) == pytest.approx(layer(x.to(FLAGOS)).sum().item(), rel=1e-4)


@pytest.mark.parametrize("strict", [False, True])
def test_programs_are_exported_moved_saved_and_decomposed(strict: bool) -> None:
    reference = Program()
    x, k = torch.randn(2, 4), torch.ones(3)
    want = reference(x, k)["y"].detach()
    program = torch.export.export(Program().to(FLAGOS), (x.to(FLAGOS), k), strict=strict)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for ours in (program, torch.export.load(file), program.run_decompositions()):
        got = ours.module()(x.to(FLAGOS), k)
        assert got["y"].device.type == got["drawn"].device.type == FLAGOS
        torch.testing.assert_close(got["y"].detach().cpu(), want)
    there = move_to_device_pass(program, "cpu")
    assert there.module()(x, k)["drawn"].device.type == "cpu"
    back = move_to_device_pass(there, {"cpu": FLAGOS})
    got = back.module()(x.to(FLAGOS), k.to(FLAGOS))
    assert {value.device.type for value in got.values()} == {FLAGOS}
    torch.testing.assert_close(got["y"].detach().cpu(), want)
