"""Owns: tests of the operators that the smoke set counts: all graphs that Inductor compiles, the
same on flagos as natively, and by whichever others a program is compiled instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from torch_fl.testing.compiled.execution import execute
from torch_fl.testing.compiled.operators import counted, other
from torch_fl.testing.compiled.program import Graph, Place, Program
from torch_fl.testing.compiled.side_by_side import compared_operators

pytestmark = pytest.mark.usefixtures("fresh_compiler")


def _trained(device: str) -> Counter[str]:
    x, weight = (torch.ones(3, 3, device=device, requires_grad=True) for _ in range(2))
    with counted() as operators:
        torch.compile(lambda x: (x @ weight).sin())(x).sum().backward()
    return operators


def test_forward_and_backward_are_counted() -> None:
    found = _trained("flagos")
    names = ("aten.mm.default", "aten.sin.default", "aten.cos.default")
    assert [found[name] for name in names] == [3, 1, 1]
    torch._dynamo.reset()
    assert _trained("cpu") == found


@pytest.mark.parametrize("device", ["flagos", "cpu"])
def test_what_the_caches_have_is_counted(device: str) -> None:
    first = _trained(device)
    for _ in range(2):
        torch._dynamo.reset()
        counters.clear()
        assert _trained(device) == first
        assert not counters["inductor"]["fxgraph_cache_hit"]
        assert not counters["aot_autograd"]["autograd_cache_hit"]


@pytest.mark.parametrize("device", ["flagos", "cpu"])
def test_graphs_inside_a_graph_are_counted(device: str) -> None:
    def function(x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x: (x.sin(),), lambda x: (x.cos(),), (x,))

    with counted() as operators, torch.no_grad():
        torch.compile(function)(torch.ones(3, device=device))
    assert operators["aten.sin.default"] == operators["aten.cos.default"] == 1
    assert operators["cond"] == 1


def test_one_of_several_results_is_no_operator_and_arithmetic_of_sizes_is_one() -> None:
    def function(x: torch.Tensor) -> Any:
        return x.max(0).values, x.new_ones(x.shape[0] * 2)

    with counted() as operators:
        torch.compile(function, dynamic=True)(torch.ones(3, 4, device="flagos"))
    assert "_operator.mul" in operators
    assert not [name for name in operators if "getitem" in name]


def test_nothing_is_counted_afterwards() -> None:
    with counted() as operators:
        pass
    torch.compile(lambda x: x.sin())(torch.ones(3, device="flagos"))
    assert not operators


def test_what_one_side_has_more_often_is_told() -> None:
    assert other({"a": 1, "b": 2}, {"b": 2, "a": 1}) == {}
    assert other({"a": 1, "b": 2}, {"b": 3, "c": 1}) == {"a": (1, 0), "b": (2, 3), "c": (0, 1)}


def _attention(device: str, function: Callable[..., Any]) -> dict[str, Any]:
    def build(at: Place) -> Program:
        given = tuple(at.normal(2, 2, 8, 16, grad=True) for _ in range(3))
        return Program(function, [given], gradients=True, tolerance=1e-4)

    result = execute(Graph("layers/attention", build), device)
    assert result.good, result
    return {"layers/attention": vars(result)}


def test_attention_that_is_written_out_on_one_side_is_found() -> None:
    """All results are right, so nothing but the operators tells."""

    def written_out(q: Any, k: Any, v: Any) -> Any:
        with sdpa_kernel(SDPBackend.MATH):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def attention(q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    native = _attention("cpu", attention)
    names = ["layers/attention"]
    assert compared_operators(names, _attention("flagos", attention), native).wrong == []
    (said,) = compared_operators(names, _attention("flagos", written_out), native).wrong
    assert said.startswith("layers/attention: other operators\n")
    assert "aten._scaled_dot_product_flash_attention_for_cpu.default: 0, natively 1" in said
    assert "aten.bmm.default: " in said
