"""Owns: tests of decompositions that ask for the device by name, and what is relied on for them. A
test that fails here names what a release of PyTorch has moved."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from against_cpu import FLAGOS, compiled, same
from torch._inductor import compile_fx, config, decomposition
from torch.fx.experimental.proxy_tensor import make_fx

from torch_fl._compat.compiler.decompositions import ASKING

aten = torch.ops.aten
pytestmark = pytest.mark.usefixtures("fresh_compiler")

# What asks and gets the same graph whatever the answer, or is asked by flagos' own name elsewhere.
OTHERWISE = {
    "masked_fill": "refuses a number of another device, as flagos does",
    "_to_copy": "asks where a copy goes, not where it comes from",
    "embedding_dense_backward": "asks for xpu",
    "max_pool2d_with_indices_backward": "asks for xpu and mps",
    "repeat_interleave": "asks for mps",
    "arange": "makes a device of its argument",
    "normal": "the CPU where there is no argument",
    "bernoulli": "random numbers of the host are flagos' own",
    "bernoulli_": "random numbers of the host are flagos' own",
}
QUESTION = re.compile(
    r"device\.type|\.is_cuda|\.is_xpu|\.is_cpu|\.is_mps|is_gpu\(|has_backend_feature\("
    r"|torch\.device\("
)

CALLS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "mm of a row": (torch.mm, ((1, 5), (5, 1))),
    "mm of a column": (torch.mm, ((5, 1), (1, 7))),
    "mm": (torch.mm, ((3, 5), (5, 7))),
    "bmm of rows": (torch.bmm, ((2, 1, 5), (2, 5, 1))),
    "bmm": (torch.bmm, ((2, 3, 5), (2, 5, 7))),
    "addmm of a row": (torch.addmm, ((7,), (1, 5), (5, 7))),
    "addmm of a column": (torch.addmm, ((7,), (3, 1), (1, 7))),
    "group_norm": (lambda x, w, b: torch.group_norm(x, 2, w, b), ((2, 4, 3), (4,), (4,))),
    "log_sigmoid": (torch.nn.functional.logsigmoid, ((3, 4),)),
    "grid_sample": (
        lambda x, g: torch.nn.functional.grid_sample(x, g, align_corners=False),
        ((1, 2, 4, 4), (1, 3, 3, 2)),
    ),
    "masked_scatter": (lambda x, y: x.masked_scatter(y > 0, y), ((3, 4), (3, 4))),
    "index_reduce": (
        lambda x, y: x.index_reduce(0, torch.arange(2, device=x.device), y, "amax"),
        ((3, 4), (2, 4)),
    ),
    "convolution": (
        lambda x, w, b, g: aten.convolution_backward(
            g, x, w, [3], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True]
        ),
        ((2, 4, 5, 5), (3, 4, 3, 3), (3,), (2, 3, 3, 3)),
    ),
}


def _graph(call: Callable[..., Any], shapes: tuple[tuple[int, ...], ...], device: str) -> Any:
    inputs = [torch.ones(shape, device=device) for shape in shapes]
    table = compile_fx.select_decomp_table()
    return make_fx(call, decomposition_table=table, tracing_mode="fake")(*inputs)


@pytest.mark.parametrize("name", CALLS)
def test_the_graph_is_that_of_the_target(name: str) -> None:
    ours, theirs = (_graph(*CALLS[name], device) for device in (FLAGOS, "cpu"))
    assert [str(node.target) for node in ours.graph.nodes] == [
        str(node.target) for node in theirs.graph.nodes
    ]
    for node in ours.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            assert value.device == torch.device(FLAGOS, 0), node
        for argument in (*node.args, *node.kwargs.values()):
            assert not isinstance(argument, torch.device) or argument.type == FLAGOS, node


def test_a_decomposed_graph_runs() -> None:
    call, shapes = CALLS["masked_scatter"]
    graph = _graph(call, shapes, FLAGOS)
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    same(graph(x.to(FLAGOS), y.to(FLAGOS)), call(x, y))


@pytest.mark.parametrize("name", ["masked_scatter", "mm of a row", "addmm of a column"])
def test_compiled_with_gradients(name: str) -> None:
    call, shapes = CALLS[name]
    theirs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    ours = [tensor.detach().to(FLAGOS).requires_grad_() for tensor in theirs]
    want, got = call(*theirs), compiled(call, fullgraph=True)(*ours)
    same(got.detach(), want.detach())
    want.square().sum().backward()
    got.square().sum().backward()
    for mine, other in zip(ours, theirs, strict=True):
        assert other.grad is not None
        same(mine.grad, other.grad)


def test_whatever_asks_is_known() -> None:
    """And it is in the table: a name that is not there would do nothing."""
    asking, packets = set(), set()
    with config.patch(fallback_random=True):
        table = decomposition.select_decomp_table()
    for operator, function in table.items():
        if getattr(operator, "namespace", "") != "aten":
            continue
        packet = operator._schema.name.partition("::")[2]
        packets.add(packet)
        source = inspect.unwrap(function)
        if not inspect.isfunction(source):
            continue
        lines = inspect.getsource(source).splitlines()
        if any(QUESTION.search(line.partition("#")[0]) for line in lines):
            asking.add(packet)
    assert asking - OTHERWISE.keys() <= ASKING
    assert packets >= ASKING


def test_the_table_is_given_by_one_function_that_caches_can_name() -> None:
    function = decomposition.select_decomp_table
    assert compile_fx.select_decomp_table is function
    assert (function.__module__, function.__qualname__) == (
        "torch._inductor.decomposition",
        "select_decomp_table",
    )
    assert list(inspect.signature(function).parameters) == []
