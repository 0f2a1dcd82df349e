"""Owns: tests of the roads into Inductor with flagos tensors: wrappers, saved artifacts, frozen
graphs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from against_cpu import FLAGOS, compiled, model, same, trains_alike
from torch._dynamo.utils import counters
from torch.nn import functional as F

pytestmark = pytest.mark.usefixtures("fresh_compiler")


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
        max_autotune_gemm_backends="CPP",
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
