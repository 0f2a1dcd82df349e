"""Owns: tests of the compiler backend by its name, and of its settings."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from against_cpu import FLAGOS, compiled, model, same, trains_alike
from children import output_of_child
from torch._dynamo.utils import counters

pytestmark = pytest.mark.usefixtures("fresh_compiler")


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
