"""Owns: what the compiler backend relies on in Inductor beyond its promises. A test that fails here
names what a release of PyTorch has moved."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.compile_fx
from torch._inductor import async_compile, output_code
from torch._inductor.compile_fx import compile_fx_inner
from torch._subclasses import fake_tensor
from torch.fx.experimental.proxy_tensor import make_fx

from torch_fl._compat.compiler import inductor
from torch_fl.compile import regions

FLAGOS = "flagos"


def found(module: str, name: str) -> Any:
    value: Any = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value


WRAPPED = {
    ("torch._inductor.compile_fx", "compile_fx"): ["model_", "example_inputs_"],
    ("torch._inductor.compile_fx", "_compile_fx_inner"): ["gm", "example_inputs"],
    ("torch._inductor.compile_fx", "fx_codegen_and_compile"): ["gm", "example_inputs"],
    ("torch._inductor.compile_fx", "_recursive_joint_graph_passes"): ["gm"],
    ("torch._inductor.compile_fx", "min_cut_rematerialization_partition"): ["joint_module"],
    ("torch._inductor.compile_fx", "fw_compiler_freezing"): [
        "aot_autograd_model",
        "aot_example_inputs",
    ],
    ("torch._inductor.freezing", "replace_params_with_constants"): [
        "gm",
        "flat_params",
        "fw_metadata",
    ],
    ("torch._inductor.output_code", "CompiledFxGraph.post_compile"): [
        "self",
        "example_inputs",
        "constants",
        "graph_kwargs",
    ],
}


@pytest.mark.parametrize(("where", "parameters"), WRAPPED.items(), ids=lambda it: str(it))
def test_wrapped_functions_exist_and_take_what_we_pass(
    where: tuple[str, str], parameters: list[str]
) -> None:
    original = found(*where)
    wrappers = []
    while hasattr(original, "__wrapped__"):
        wrappers.append(original.__code__.co_filename)
        original = original.__wrapped__
    assert inductor.__file__ in wrappers
    source = inspect.getsourcefile(original)
    assert source is not None
    assert Path(source).is_relative_to(Path(torch.__file__).parent), "PyTorch's own, in the end"
    assert list(inspect.signature(original).parameters)[: len(parameters)] == parameters


def test_nothing_else_names_parts_of_inductor() -> None:
    """But for its settings and public functions, that is."""
    public = {"config", "aoti_compile_and_package", "custom_graph_pass"}
    folder = Path(inductor.__file__).parent
    for path in folder.parents[1].rglob("*.py"):
        if folder not in path.parents:
            named = re.findall(r"torch\._inductor(?:\.| import )(\w+)", path.read_text())
            assert set(named) <= public, path
            assert "_TorchCompileInductorWrapper" not in path.read_text(), path


def test_a_compiled_graph_has_what_the_boundary_replaces() -> None:
    fields = output_code.CompiledFxGraph.__annotations__
    assert {"current_callable", "mutated_input_idxs"} <= set(fields)


def test_each_wrapped_function_is_called_for_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are looked up by name at each compilation, so replacing the name is enough."""
    called: list[str] = []
    for module, name in WRAPPED:
        owner: Any = importlib.import_module(module)
        *parents, last = name.split(".")
        for part in parents:
            owner = getattr(owner, part)
        wrapper = getattr(owner, last)

        def note(*args: Any, _wrapper: Any = wrapper, _name: str = name, **kwargs: Any) -> Any:
            called.append(_name)
            return _wrapper(*args, **kwargs)

        monkeypatch.setattr(owner, last, note)
    torch._dynamo.reset()
    x = torch.ones(3, device=FLAGOS)
    weight = torch.nn.Parameter(torch.ones(3, 3, device=FLAGOS))
    module = torch.nn.Module()
    module.weight = weight
    with torch.no_grad(), torch._inductor.config.patch(force_disable_caches=True):
        frozen = torch.compile(lambda v: v @ module.weight, options={"freezing": True})
        torch.testing.assert_close(frozen(x).cpu(), torch.full((3,), 3.0))
    with torch._inductor.config.patch(force_disable_caches=True):
        torch.compile(lambda v: v @ weight)(x).sum().backward()
    assert set(called) == {name for _, name in WRAPPED}


def test_a_renamed_graph_is_compiled_alone_too() -> None:
    graph = make_fx(lambda x: (x + 1, x.sum()), tracing_mode="fake")(torch.ones(2, device=FLAGOS))
    mode = fake_tensor.FakeTensorMode()
    compiled = compile_fx_inner(graph, [mode.from_tensor(torch.ones(2, device=FLAGOS))])
    one, two = compiled([torch.ones(2, device=FLAGOS)])
    assert (one.tolist(), two.item()) == ([2, 2], 2)
    assert one.device.type == two.device.type == FLAGOS


def test_workers_start_with_the_graph_where_there_are_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PyTorch wakes them for devices that it knows by name."""
    source = inspect.getsource(inspect.unwrap(torch._inductor.compile_fx.compile_fx))
    assert 'in ("cuda", "xpu")' in source
    assert "AsyncCompile.wakeup()" in source
    told: list[bool] = []
    monkeypatch.setattr(async_compile.AsyncCompile, "wakeup", lambda: told.append(True))
    x = torch.ones(3, device=FLAGOS)
    for workers in (False, True):
        monkeypatch.setattr(regions, "has_workers", lambda workers=workers: workers)
        torch._dynamo.reset()
        torch.compile(lambda v: v * 2 + 1)(torch.ones(3))
        assert told == []
        torch.compile(lambda v: v * 2 - 1)(x)
        assert bool(told) is workers
