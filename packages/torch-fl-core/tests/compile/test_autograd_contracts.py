"""Owns: what the compiler backend relies on in AOTAutograd, and of random states in
graphs. A test that fails here names what a release of PyTorch has moved."""

from __future__ import annotations

import operator

import pytest
import torch
import torch._inductor.compile_fx
from torch._functorch._aot_autograd import collect_metadata_analysis
from torch._functorch._aot_autograd import utils as aot_utils
from torch._subclasses import fake_tensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils.checkpoint import checkpoint

from torch_fl.compile import eager, host_streams, random_states
from torch_fl.compile.eager import choice

FLAGOS = "flagos"


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


def test_a_device_by_position_is_left_out_behind_a_state() -> None:
    """Operators of ours have no device among their arguments; a state stands before the others."""
    flagos = torch.device(FLAGOS, 0)
    seeds = torch.ops.prims.inductor_seeds.default
    graph = torch.fx.Graph()
    state = graph.placeholder("state")
    state.meta["val"] = torch.empty(8, dtype=torch.uint8)
    around = torch._prims.rng_prims.run_with_rng_state
    call = graph.call_function(around, (state, seeds, 2, flagos))
    saved = graph.call_function(torch._prims.rng_prims.run_and_save_rng_state, (seeds, 3, flagos))
    call.meta["val"] = torch.empty(2, dtype=torch.int64, device=flagos)
    saved.meta["val"] = (state.meta["val"], torch.empty(3, dtype=torch.int64, device=flagos))
    graph.output((call, saved))
    assert len(eager.keep(torch.fx.GraphModule(torch.nn.Module(), graph))) == 2
    assert call.args == (state, 2)
    assert saved.args == (3,)


def test_operators_of_random_states_see_a_device_by_position() -> None:
    """Run as they stand, as compilers that run the graph do."""
    seeds, device = torch.ops.prims.inductor_seeds.default, torch.device(FLAGOS, 0)
    state, first = torch._prims.rng_prims.run_and_save_rng_state(seeds, 3, device)
    assert state.numel() == torch.flagos.get_rng_state().numel()  # type: ignore[attr-defined]
    again = torch._prims.rng_prims.run_with_rng_state(state, seeds, 3, device)
    assert first.device == device
    assert torch.equal(first, again)
