"""Owns: what the compiler backend relies on in PyTorch beyond its promises. A test that fails here
names what a release of PyTorch has moved."""

from __future__ import annotations

import importlib
import inspect
import operator
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo.variables.ctx_manager as contexts
import torch._inductor.compile_fx
from torch._dynamo import device_interface, trace_rules
from torch._dynamo.backends import registry
from torch._dynamo.variables import torch as torch_variables
from torch._dynamo.variables import user_defined
from torch._functorch._aot_autograd import collect_metadata_analysis
from torch._functorch._aot_autograd import utils as aot_utils
from torch._inductor import output_code
from torch._inductor.compile_fx import compile_fx_inner
from torch._subclasses import fake_tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils.checkpoint import checkpoint

from torch_fl._compat.compiler import dynamo_calls, inductor
from torch_fl._compat.compiler.fake_tensors import FakeTensor, on_device
from torch_fl.compile import host_streams, random_states
from torch_fl.compile.eager import choice
from torch_fl.compile.renaming import Renaming

FLAGOS = "flagos"


def found(module: str, name: str) -> Any:
    value: Any = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value


# -- _compat/compiler/inductor.py

WRAPPED = {
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
    public = {"config", "aoti_compile_and_package"}
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


# -- _compat/compiler/fake_tensors.py


def test_a_fake_tensor_can_be_made_of_another() -> None:
    parameters = list(inspect.signature(fake_tensor.FakeTensor.__new__).parameters)
    assert parameters[0] == "cls"
    assert {"elem", "device"} <= set(parameters)
    assert list(inspect.signature(fake_tensor.in_kernel_invocation_manager).parameters) == [
        "fake_mode"
    ]


def test_renamed_fake_tensors_share_their_storage() -> None:
    mode = fake_tensor.FakeTensorMode()
    with mode:
        base = torch.empty(4, 6, device="flagos:0", dtype=torch.bfloat16)
        view = base[1:, ::2]
    to = Renaming(FLAGOS, "cpu", index=None)
    renamed, of_view = to.value(base), to.value(view)
    assert isinstance(renamed, FakeTensor)
    assert renamed.fake_mode is mode
    assert to.value(base) is renamed
    for one, other in ((renamed, base), (of_view, view)):
        assert one.device == torch.device("cpu")
        assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)
        assert one.storage_offset() == other.storage_offset()
        assert one.untyped_storage()._cdata == base.untyped_storage()._cdata
    back = Renaming("cpu", FLAGOS, index=1).value(renamed)
    assert back.device == torch.device("flagos:1")


def test_renamed_fake_tensors_keep_symbolic_sizes() -> None:
    mode = fake_tensor.FakeTensorMode(shape_env=ShapeEnv())
    fake = mode.from_tensor(torch.empty(5, 7, device=FLAGOS), static_shapes=False)
    torch._dynamo.mark_dynamic(fake, 0)
    renamed = on_device(fake, torch.device("cpu"))
    assert [str(size) for size in renamed.shape] == [str(size) for size in fake.shape]
    with mode:
        assert (renamed + 1).device.type == "cpu"


def test_constants_are_renamed_while_a_fake_mode_is_on() -> None:
    constant = torch.ones(3, device=FLAGOS)
    graph = make_fx(lambda x: x + constant)(torch.ones(3, device=FLAGOS))
    (node,) = graph.graph.find_nodes(op="get_attr")
    with fake_tensor.FakeTensorMode():
        Renaming(FLAGOS, "cpu", index=None).graph(graph)
        there = getattr(graph, node.target)
        Renaming("cpu", FLAGOS, index=0).graph(graph)
    back = getattr(graph, node.target)
    assert (there.device, back.device) == (torch.device("cpu"), torch.device("flagos:0"))
    assert not isinstance(back, FakeTensor)
    assert there.data_ptr() == back.data_ptr() == constant.data_ptr()
    assert graph(torch.ones(3, device=FLAGOS)).tolist() == [2, 2, 2]


# -- _compat/compiler/dynamo.py


def test_flagos_is_registered_with_dynamo() -> None:
    assert "flagos" in registry._BACKENDS
    assert "flagos" in registry.list_backends()
    interface = device_interface.get_interface_for_device(FLAGOS)
    assert interface.device_count() == torch.flagos.device_count()
    assert list(inspect.signature(device_interface.register_interface_for_device).parameters) == [
        "device",
        "device_interface",
    ]
    names = list(inspect.signature(registry.register_backend).parameters)
    assert names[:2] == ["compiler_fn", "name"]


def test_the_device_interface_has_all_that_cudas_has() -> None:
    own = device_interface.get_interface_for_device(FLAGOS)
    base, cuda = device_interface.DeviceInterface, device_interface.CudaInterface
    # What has no meaning for a device that is no GPU with Triton, and what the base answers well.
    left = {"raise_if_triton_unavailable", "is_triton_capable", "is_dtype_supported"}
    for name in vars(cuda):
        if name.startswith("__") or name in left:
            continue
        assert getattr(own, name) is not getattr(base, name, None) or name not in vars(own), name
        assert getattr(own, name).__qualname__ != f"DeviceInterface.{name}", name


# -- _compat/compiler/dynamo_calls.py


def test_dynamos_lists_have_flagos_functions() -> None:
    rules = trace_rules.get_torch_obj_rule_map()
    flagos: Any = torch.flagos
    for name in (*dynamo_calls.CONSTANT, *dynamo_calls.GUARDED, *dynamo_calls.IN_GRAPH):
        assert rules[getattr(flagos, name)] is torch_variables.TorchInGraphFunctionVariable, name
    folded = torch_variables.constant_fold_functions
    for name in (*dynamo_calls.CONSTANT, *dynamo_calls.GUARDED):
        assert getattr(flagos, name) in folded, name
    for name in dynamo_calls.GUARDED:
        assert getattr(flagos, name) in torch_variables.constant_fold_functions_need_guards, name
    handlers = torch_variables.TorchInGraphFunctionVariable._get_handlers()
    assert flagos.stream in handlers
    for name in dynamo_calls.AS_ACCELERATOR:
        assert handlers[getattr(flagos, name)] is handlers[getattr(torch.accelerator, name)], name
    classes = user_defined.UserDefinedClassVariable._in_graph_classes()
    assert {flagos.Stream, flagos.Event} <= classes
    assert hasattr(contexts, "register_device_context_manager")


def test_the_current_device_is_guarded() -> None:
    torch._dynamo.reset()
    counted = torch._dynamo.testing.CompileCounter()
    f = torch.compile(lambda x: x + torch.flagos.current_device(), backend=counted, fullgraph=True)
    x = torch.ones(1, device=FLAGOS)
    assert f(x).item() == 1
    assert f(x).item() == 1
    assert counted.frame_count == 1


# -- _compat/compiler/aot_autograd.py


def test_states_of_autocast_count_flagos() -> None:
    assert collect_metadata_analysis._get_autocast_states is aot_utils._get_autocast_states
    before = aot_utils._get_autocast_states()
    with torch.autocast(FLAGOS, dtype=torch.float16):
        assert aot_utils._get_autocast_states() != before
    assert aot_utils._get_autocast_states() == before


def test_autocast_of_flagos_is_guarded_and_holds_in_the_backward_pass() -> None:
    torch._dynamo.reset()
    linear = torch.nn.Linear(4, 4).to(FLAGOS)
    compiled = torch.compile(lambda x: linear(x), backend="aot_eager")
    x = torch.ones(2, 4, device=FLAGOS)
    plain = compiled(x)
    with torch.autocast(FLAGOS, dtype=torch.bfloat16):
        cast = compiled(x)
        with torch.autocast(FLAGOS, enabled=False):
            assert compiled(x).dtype == torch.float32
    assert (plain.dtype, cast.dtype) == (torch.float32, torch.bfloat16)
    cast.sum().backward()  # outside of the region: traced with the state that was inside
    assert linear.weight.grad is not None
    assert linear.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("name", ["run_and_save_rng_state", "run_with_rng_state"])
def test_operators_of_random_states_take_flagos(name: str) -> None:
    around = getattr(torch._prims.rng_prims, name)
    assert around.name() == name
    assert torch._C.DispatchKey.PrivateUse1 in around.py_kernels
    assert torch._C.DispatchKey.BackendSelect in around.py_kernels
    assert random_states.form(around)


@pytest.mark.parametrize("fallback", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager_decomp_partition", "inductor"])
def test_random_numbers_are_flagos_own(backend: str, fallback: bool) -> None:
    """Reproduced by its seed, kept by `fork_rng`, the CPU's generator untouched; what a checkpoint
    computes again in the backward pass has the numbers of the forward pass."""
    torch._dynamo.reset()

    def drop(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5) * x + torch.rand_like(x) * 0

    def function(x: torch.Tensor) -> torch.Tensor:
        kept: torch.Tensor = checkpoint(drop, x, use_reentrant=False)
        return kept

    compiled = torch.compile(function, backend=backend)
    x = torch.ones(256, device=FLAGOS, requires_grad=True)

    def run(seed: int | None) -> torch.Tensor:
        if seed is not None:
            torch.flagos.manual_seed(seed)
        x.grad = None
        y = compiled(x)
        y.sum().backward()
        # d/dx of mask * x * x at 1: twice what came through, element by element.
        assert torch.equal(x.grad, 2 * y.detach())  # type: ignore[arg-type]
        return y.detach()

    with torch._inductor.config.patch(fallback_random=fallback):
        host = torch.get_rng_state()
        first, again, other, next_one = run(3), run(3), run(4), run(None)
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        assert not torch.equal(other, next_one)
        state = torch.flagos.get_rng_state()
        with torch.random.fork_rng(devices=[0], device_type=FLAGOS):
            run(None)
        assert torch.equal(state, torch.flagos.get_rng_state())
        assert torch.equal(host, torch.get_rng_state())


# -- torch_fl.compile


def test_states_in_graphs_have_the_size_of_flagos_own(monkeypatch: pytest.MonkeyPatch) -> None:
    mode = fake_tensor.FakeTensorMode()
    with mode:
        state, x = torch.empty(5056, dtype=torch.uint8), torch.empty(3, device=FLAGOS)
    prims, rand = torch._prims.rng_prims, torch.ops.aten.rand_like.default
    graph = torch.fx.Graph()
    given, value = graph.placeholder("rng_state_output_0"), graph.placeholder("x")
    given.meta["val"], value.meta["val"] = state, x
    saved = graph.call_function(prims.run_and_save_rng_state, (rand, value))
    out = graph.call_function(operator.getitem, (saved, 0))
    out.meta["val"] = state
    repeated = graph.call_function(prims.run_with_rng_state, (given, rand, value))
    graph.output((out, repeated))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    assert random_states.sized(module, [state, x]) == [state, x]
    size = torch.Size([16])
    monkeypatch.setattr(
        torch.flagos, "get_rng_state", lambda device: torch.empty(size, dtype=torch.uint8)
    )
    first, second = random_states.sized(module, [state, x])
    assert (first.shape, first.dtype, first.device.type) == (size, torch.uint8, "cpu")
    assert second is x
    assert given.meta["val"] is first
    assert out.meta["val"].shape == size


@pytest.mark.parametrize("size", [16, 5056])
def test_no_guard_is_left_on_the_size_of_a_state(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    shapes = ShapeEnv()
    mode = fake_tensor.FakeTensorMode(shape_env=shapes)
    # As PyTorch makes it for a graph: of no argument, so its size is a symbol without a source.
    state = mode.from_tensor(torch.empty(5056, dtype=torch.uint8), static_shapes=False)
    assert isinstance(state.shape[0], torch.SymInt)
    own = torch.empty(size, dtype=torch.uint8)
    monkeypatch.setattr(torch.flagos, "get_rng_state", lambda device: own)
    sized = random_states._state_like(state)
    assert [*sized.shape] == [size]
    assert shapes.guards == []
    assert random_states._state_like(sized) is sized


def test_ordering_of_stream_calls_is_known_by_its_name() -> None:
    assert host_streams._is_ordering(torch.ops.higher_order.control_deps)
    assert host_streams._is_streams(torch.ops.streams.record_event.default)
    assert torch.ops.streams.record_event.default.name() == host_streams._SEEN_AFTERWARDS


def test_operators_that_cpus_do_not_have_are_called_as_flagos_own() -> None:
    cell = torch.ops.aten._thnn_fused_lstm_cell.default
    assert choice.is_unknown_to_cpus(cell)
    assert not choice.is_unknown_to_cpus(torch.ops.aten.addmm.default)
    assert not choice.is_unknown_to_cpus(torch.ops.aten.linear.default)
