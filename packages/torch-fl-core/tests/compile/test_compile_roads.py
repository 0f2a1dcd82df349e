"""Owns: tests of the roads into Inductor with flagos tensors: the backend by name and its settings,
wrappers, frozen graphs, higher-order operators, users' operators, routes."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from children import output_of_child
from torch._dynamo.utils import counters
from torch.nn import functional as F
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from torch_fl import routing

FLAGOS = "flagos"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Any], **settings: Any) -> Any:
    return torch.compile(function, backend="flagos", **settings)


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = (torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    return torch.nn.Sequential(*layers)


def same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert ours.device.type == FLAGOS
    torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-5)


def trains_alike(run: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]) -> None:
    """`run` on flagos has the loss and gradients of the same model, not compiled, on the CPU."""
    reference, inputs = model(), torch.randn(3, 8)
    ours = copy.deepcopy(reference).to(FLAGOS)
    want = reference(inputs).sin().sum()
    want.backward()
    loss = run(ours, inputs.to(FLAGOS))
    if loss.requires_grad:
        loss.backward()
    same(loss.detach(), want.detach())
    for mine, other in zip(ours.parameters(), reference.parameters(), strict=True):
        assert mine.grad is not None
        same(mine.grad, other.grad)


# -- the backend and its settings


@pytest.mark.parametrize("autoload", ["0", "1"])
def test_the_backend_is_found_where_torch_fl_is_not_imported(autoload: str) -> None:
    said = output_of_child(
        """
        import sys, torch
        before = "torch_fl" in sys.modules
        f = torch.compile(lambda x: x[1:], backend="flagos")
        x = torch.ones(3, device="cpu" if not before else "flagos")
        print(before, f(x).tolist(), torch.zeros(2, device="flagos").device)
        print("flagos" in torch.compiler.list_backends())
        """,
        FLAGOS_AUTOLOAD=autoload,
    )
    assert said.split("\n")[:2] == [f"{autoload == '1'} [1.0, 1.0] flagos:0", "True"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"options": {"nonsense": 1}}, "Unexpected optimization option nonsense"),
        ({"options": {"max_autotune": "yes"}}, "Unexpected type of attr max_autotune, got str"),
        ({"mode": "turbo"}, "Unrecognized mode=turbo, should be one of: default"),
    ],
)
def test_unknown_settings_are_refused_in_pytorchs_words(
    settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(Exception, match=re.escape(words)):
        compiled(torch.sin, **settings)(torch.zeros(2, device=FLAGOS))


def test_mode_and_options_are_in_force_for_one_compilation_and_its_backward_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch._inductor import compile_fx, config

    seen = []
    compile_graph = compile_fx.fx_codegen_and_compile

    def note(*args: Any, **kwargs: Any) -> Any:
        seen.append((config.max_autotune, config.max_fusion_size, kwargs["is_backward"]))
        return compile_graph(*args, **kwargs)

    monkeypatch.setattr(compile_fx, "fx_codegen_and_compile", note)
    before = config.max_autotune, config.max_fusion_size
    x = torch.randn(4, device=FLAGOS, requires_grad=True)
    with config.patch(fx_graph_cache=False):
        compiled(lambda x: x.sin().sum(), mode="max-autotune-no-cudagraphs")(x).backward()
        compiled(lambda x: x.cos().sum(), options={"max_fusion_size": 3})(x).backward()
        compiled(lambda x: x.tan().sum())(x).backward()
    assert seen == [
        *((True, before[1], backward) for backward in (False, True)),
        *((before[0], 3, backward) for backward in (False, True)),
        *((*before, backward) for backward in (False, True)),
    ]
    assert (config.max_autotune, config.max_fusion_size) == before


def test_dynamic_shapes_and_full_graphs() -> None:
    def normalize(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1).sum(0)

    for dynamic in (True, None):
        torch._dynamo.reset()
        counters.clear()
        run = compiled(normalize, dynamic=dynamic, fullgraph=True)
        for rows in (2, 3, 7, 11):
            x = torch.randn(rows, 5)
            same(run(x.to(FLAGOS)), normalize(x))
        assert counters["stats"]["unique_graphs"] == (1 if dynamic else 2)

    def breaks(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x + 1

    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(breaks, fullgraph=True)(torch.zeros(2, device=FLAGOS))
    assert compiled(breaks)(torch.zeros(2, device=FLAGOS)).tolist() == [1, 1]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "aot_eager_decomp_partition"])
def test_other_backends(backend: str) -> None:
    trains_alike(lambda ours, x: torch.compile(ours, backend=backend)(x).sin().sum())


def test_explain_finds_no_breaks() -> None:
    found = torch._dynamo.explain(model().to(FLAGOS))(torch.randn(3, 8, device=FLAGOS))
    assert found.graph_break_count == 0
    assert found.graph_count == 1


# -- ways to call the compiler


def test_regional_compilation() -> None:
    def run(ours: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        for layer in ours.children():
            layer.compile(backend="flagos")
        return ours(x).sin().sum()

    trains_alike(run)


def test_inductor_compiles_a_graph_without_dynamo() -> None:
    reference, inputs = model(), torch.randn(3, 8)
    graph = torch.fx.symbolic_trace(copy.deepcopy(reference).to(FLAGOS))
    run = torch._inductor.compile(graph, [inputs.to(FLAGOS)])
    same(run(inputs.to(FLAGOS)).detach(), reference(inputs).detach())


@pytest.mark.parametrize("aot", [False, True])
def test_standalone_compile_saves_and_loads(tmp_path: Any, aot: bool) -> None:
    function = lambda x, y: (torch.relu(x @ y) + 1,)  # noqa: E731  (annotations are not cacheable)
    x, y = torch.randn(4, 8), torch.randn(8, 3)
    ours = x.to(FLAGOS), y.to(FLAGOS)
    path = str(tmp_path / "artifact")
    with torch.no_grad():
        graph = torch.fx.experimental.proxy_tensor.make_fx(function)(*ours)
        artifact = torch._inductor.standalone_compile(
            graph, list(ours), dynamic_shapes="from_example_inputs", aot=aot
        )
        same(artifact(*ours)[0], function(x, y)[0])
        artifact.save(path=path, format="binary")
        loaded = torch._inductor.CompiledArtifact.load(path=path, format="binary")
        same(loaded(*ours)[0], function(x, y)[0])


@pytest.mark.slow
def test_cpp_wrapper_with_gradients_and_random_numbers() -> None:
    options = {"cpp_wrapper": True}
    trains_alike(lambda ours, x: compiled(ours, options=options)(x).sin().sum())
    draw = compiled(lambda x: F.dropout(x, 0.5) + torch.rand_like(x), options=options)
    x = torch.ones(64, device=FLAGOS)
    draws = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        draws.append(draw(x).cpu())
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def _packed(layers: torch.nn.Module, inputs: torch.Tensor, **settings: Any) -> dict[str, int]:
    """Compiles on the CPU and on flagos, frozen; what Inductor counted, the same for both."""
    counted = []
    results = []
    for device in ("cpu", FLAGOS):
        torch._dynamo.reset()
        counters.clear()
        mine = copy.deepcopy(layers).to(device)
        with torch.no_grad(), torch._inductor.config.patch(freezing=True, **settings):
            results.append(torch.compile(mine)(inputs.to(device)))
        counted.append({k: v for k, v in counters["inductor"].items() if "cache" not in k})
    same(results[1], results[0])
    assert counted[0] == counted[1]
    return counted[1]


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="a PyTorch without oneDNN")
def test_frozen_graphs_are_folded_and_packed_as_on_the_cpu() -> None:
    layers = (torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
    counted = _packed(torch.nn.Sequential(*layers).eval(), torch.randn(2, 3, 8, 8))
    assert counted["mkldnn_conv_weight_pack_matcher_count"] == 1
    assert counted["binary_folding_conv"] > 0


@pytest.mark.slow
@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="a PyTorch without MKL")
def test_templates_of_max_autotune_are_used_as_on_the_cpu() -> None:
    counted = _packed(
        model().eval(),
        torch.randn(16, 8),
        max_autotune=True,
        max_autotune_gemm_backends="CPP,ATEN",
        autotune_local_cache=False,
    )
    assert counted["mkldnn_linear_weight_pack_matcher_count"] == 2


@pytest.mark.slow
def test_frozen_parameters_can_be_discarded() -> None:
    mine = model().to(FLAGOS).eval()
    x = torch.randn(3, 8, device=FLAGOS)
    want = mine(x).detach()
    settings = {"freezing": True, "freezing_discard_parameters": True}
    with torch.no_grad(), torch._inductor.config.patch(settings):
        run = torch.compile(mine)
        same(run(x), want.cpu())
    with pytest.raises(RuntimeError, match="after Dynamo Freezing"):
        mine(x)


# -- autograd


@pytest.mark.slow
@pytest.mark.parametrize("by_setting", [False, True])
def test_compiled_autograd(by_setting: bool) -> None:
    def run(ours: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        if not by_setting:
            with torch._dynamo.compiled_autograd._enable(torch.compile(backend="flagos")):
                loss = compiled(ours)(x).sin().sum()
                loss.backward()
            return loss.detach()

        def step(x: torch.Tensor) -> torch.Tensor:
            loss = ours(x).sin().sum()
            loss.backward()
            return loss.detach()

        with torch._dynamo.config.patch(compiled_autograd=True):
            return compiled(step)(x)

    trains_alike(run)


@pytest.mark.parametrize("kind", ["reentrant", "not reentrant", "selective"])
def test_activation_checkpointing(kind: str) -> None:
    def policy(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        saved = operator is torch.ops.aten.addmm.default
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    def contexts() -> Any:
        return create_selective_checkpoint_contexts(policy)

    more = {"context_fn": contexts} if kind == "selective" else {}

    def run(ours: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        def loss(x: torch.Tensor) -> torch.Tensor:
            return checkpoint(ours, x, use_reentrant=kind == "reentrant", **more).sin().sum()

        return compiled(loss)(x)

    trains_alike(run)


def test_a_checkpoint_drops_the_same_again() -> None:
    def drop(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.dropout(x @ w, 0.5).sin()

    x = torch.ones(4, 8, device=FLAGOS)
    w = torch.full((8, 8), 0.1, device=FLAGOS, requires_grad=True)
    y = compiled(lambda x, w: checkpoint(drop, x, w, use_reentrant=False))(x, w)
    y.sum().backward()
    kept = (y != 0).cpu().float()
    assert 0 < kept.mean() < 1
    same(w.grad, x.cpu().t() @ (kept * torch.cos(torch.tensor(1.6)) * 2))


# -- higher-order operators


def _cond(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sin() * x, lambda x: x.cos(), (x,))


def _while_loop(x: torch.Tensor) -> torch.Tensor:
    from torch._higher_order_ops.while_loop import while_loop

    def more(i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return i < 5

    def step(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return i + 1, x * 1.5

    start = torch.zeros((), dtype=torch.int64, device=x.device)
    return while_loop(more, step, (start, x))[1]


def _scan(x: torch.Tensor) -> torch.Tensor:
    from torch._higher_order_ops.scan import scan

    start = torch.zeros(3, device=x.device)
    return scan(lambda total, x: (total + x, total * x), start, x)[1]


def _associative_scan(x: torch.Tensor) -> torch.Tensor:
    from torch._higher_order_ops.associative_scan import associative_scan

    return associative_scan(lambda a, b: a + b, x, dim=0, combine_mode="generic")


@torch.compiler.nested_compile_region
def _region(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


def _invoke_subgraph(x: torch.Tensor) -> torch.Tensor:
    return _region(_region(x)) * 2


@pytest.mark.parametrize(
    "function",
    [
        _cond,
        _while_loop,
        _invoke_subgraph,
        pytest.param(_scan, marks=pytest.mark.slow),
        pytest.param(_associative_scan, marks=pytest.mark.slow),
    ],
)
def test_higher_order_operators(function: Callable[..., torch.Tensor]) -> None:
    learns = function in (_cond, _invoke_subgraph)
    run = compiled(function, fullgraph=True)
    for sign in (1, -1):
        theirs = torch.rand(4, 3) * sign
        ours = theirs.to(FLAGOS).requires_grad_(learns)
        theirs.requires_grad_(learns)
        want = function(theirs)
        got = run(ours)
        same(got.detach(), want.detach())
        if learns:
            want.sum().backward()
            got.sum().backward()
            same(ours.grad, theirs.grad)


def test_flex_attention() -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def bias(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return score + (i - j) * 0.01

    def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
        return i >= j

    q = torch.randn(1, 2, 128, 16)
    ours = q.to(FLAGOS)
    mask = create_block_mask(causal, None, None, 128, 128, device=FLAGOS)
    run = compiled(flex_attention, fullgraph=True)
    with torch.no_grad():
        got = run(ours, ours, ours, score_mod=bias, block_mask=mask)
    i = torch.arange(128)
    scores = q @ q.transpose(-1, -2) / 4 + (i[:, None] - i) * 0.01
    scores = scores.masked_fill(i[:, None] < i, -torch.inf)
    torch.testing.assert_close(got.cpu(), scores.softmax(-1) @ q, rtol=1e-3, atol=1e-3)


# -- users' operators, and routes


def test_users_operators_run_where_they_run_eagerly() -> None:
    seen: list[str] = []

    @torch.library.custom_op("torch_fl_test::everywhere", mutates_args=())
    def everywhere(x: torch.Tensor) -> torch.Tensor:
        seen.append(f"everywhere {x.device.type}")
        return x * 2

    @torch.library.custom_op("torch_fl_test::on_cpu", mutates_args=(), device_types="cpu")
    def on_cpu(x: torch.Tensor) -> torch.Tensor:
        seen.append(f"on_cpu {x.device.type}")
        return x * 3

    @torch.library.custom_op("torch_fl_test::add_", mutates_args={"x"}, device_types=FLAGOS)
    def add_(x: torch.Tensor, k: float) -> None:
        seen.append(f"add_ {x.device.type}")
        x.add_(k)

    everywhere.register_fake(torch.empty_like)
    on_cpu.register_fake(torch.empty_like)
    add_.register_fake(lambda x, k: None)
    everywhere.register_autograd(lambda context, gradient: gradient * 2)

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        add_(y, 2.0)
        return on_cpu(everywhere(y))

    x = torch.zeros(3, device=FLAGOS)
    want = function(x)
    eagerly = seen.copy()
    seen.clear()
    assert torch.equal(compiled(function, fullgraph=True)(x), want)
    assert seen == eagerly == ["add_ flagos", "everywhere flagos", "on_cpu cpu"]
    x.requires_grad_()
    compiled(lambda x: everywhere(x).sin().sum(), fullgraph=True)(x).backward()
    same(x.grad, torch.full((3,), 2.0))


def test_routed_operators_stay_calls() -> None:
    calls: list[str] = []

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        calls.append("mm")
        return torch.full((a.shape[0], b.shape[1]), 7.0, device=a.device)

    def bent(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
        calls.append("gelu")  # PyTorch decomposes it, unless it is routed
        return x + 100

    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.gelu((a @ b).relu() + 1)

    a, b = torch.randn(3, 4, device=FLAGOS), torch.randn(4, 5, device=FLAGOS)
    routing.set({"mm": product, "gelu": bent, "add": "cpu"})
    try:
        got = compiled(function)(a, b)
    finally:
        routing.reset()
    assert got.tolist() == [[108.0] * 5] * 3
    assert calls == ["mm", "gelu"]
    torch._dynamo.reset()
    same(compiled(function)(a, b), function(a.cpu(), b.cpu()))
    assert calls == ["mm", "gelu"]


def test_default_routes_leave_operators_to_the_compiler(tmp_path: Any) -> None:
    routes = tmp_path / "routes.conf"
    routes.write_text("default = cpu, boxing\nsin = boxing\nmul* = cpu\n")
    said = output_of_child(
        """
        import torch, torch_fl
        from torch_fl.compile import routed
        print(sorted(name for name in routed.names() if "." not in name or "Tensor" in name))
        """,
        FLAGOS_BACKEND_CONFIG=str(routes),
    )
    assert "aten::mul.Tensor" in said
    assert "aten::sin" not in said
    assert "aten::add.Tensor" not in said
