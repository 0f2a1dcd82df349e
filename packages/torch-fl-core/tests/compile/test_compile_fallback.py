"""Owns: tests of graphs that Inductor cannot compile: run eagerly where that is wanted, explained
where it is not."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from releases import not_in_old
from torch._inductor import config, lowering
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from torch_fl.compile import fallback
from torch_fl.compile.renaming import graph_modules

FLAGOS = "flagos"
SWITCH = "FLAGOS_COMPILE_FALLBACK_EAGER"
LOGGER = "torch_fl.compile"

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    torch._dynamo.reset()
    monkeypatch.setenv(SWITCH, "1")
    with config.patch(fx_graph_cache=False):
        yield
    torch._dynamo.reset()


@pytest.fixture
def no_compiler() -> Iterator[None]:
    with config.patch({"cpp.cxx": (None, "/nowhere/c++")}):
        yield


@pytest.fixture
def no_lowering(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Makes Inductor fail on an operator."""

    def refuse(operator: Any) -> None:
        def lower(*args: Any, **kwargs: Any) -> None:
            raise NotImplementedError("not for this device")

        monkeypatch.setitem(lowering.lowerings, operator, lower)

    return refuse


def compiled(function: Callable[..., Any], **settings: Any) -> Any:
    return torch.compile(function, backend="flagos", **settings)


def same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert ours.device.type == FLAGOS
    torch.testing.assert_close(ours.cpu(), theirs)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


def trains_alike(run: Callable[[torch.nn.Module], Any]) -> None:
    torch.manual_seed(0)
    reference = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    ours = copy.deepcopy(reference).to(FLAGOS)
    x = torch.randn(3, 8)
    want = reference(x)
    want.sum().backward()
    got = run(ours)(x.to(FLAGOS))
    got.sum().backward()
    same(got.detach(), want.detach())
    for mine, other in zip(ours.parameters(), reference.parameters(), strict=True):
        assert mine.grad is not None
        same(mine.grad, other.grad)


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("run", [compiled, torch.compile], ids=["flagos", "inductor"])
def test_without_a_cpp_compiler_both_passes_run_eagerly_and_say_why_once(
    run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger=LOGGER)
    trains_alike(run)
    said = messages(caplog)
    assert [text.partition(" graph")[0].rpartition(" ")[2] for text in said] == [
        "forward",
        "backward",
    ]
    for text in said:
        assert SWITCH in text
        assert "InvalidCxxCompiler: No working C++ compiler found" in text
        assert "Install a C++ compiler" in text


def test_a_backward_pass_alone_can_fail(
    no_lowering: Callable[[Any], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger=LOGGER)
    no_lowering(aten.mm.default)  # only the gradients of a layer with a bias need it
    trains_alike(compiled)
    (text,) = messages(caplog)
    assert "the backward graph" in text
    assert "not for this device" in text


@pytest.mark.parametrize("switch", ["0", ""])
def test_without_the_switch_the_error_is_pytorchs_and_names_it(
    switch: str, no_lowering: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, switch)
    no_lowering(aten.erf.default)
    x = torch.randn(3)
    with pytest.raises(Exception, match="not for this device") as raised:
        compiled(lambda x: x.erf() + 1)(x.to(FLAGOS))
    assert str(raised.value).count(f"{SWITCH}=1 lets graphs") == 1
    torch._dynamo.reset()
    with pytest.raises(Exception, match="not for this device") as raised:
        torch.compile(lambda x: x.erf() + 1)(x)
    assert SWITCH not in str(raised.value)  # a program of the CPU's own is not ours to advise


@pytest.mark.usefixtures("no_compiler")
def test_views_writes_and_branches() -> None:
    def write(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.add_(1)
        y[:, 0] = x[:, 1]
        return x.view(-1), x * y

    theirs = [torch.randn(3, 4), torch.randn(3, 4)]
    ours = [value.to(FLAGOS) for value in theirs]
    want, got = write(*theirs), compiled(write)(*ours)
    for mine, other in zip((*got, *ours), (*want, *theirs), strict=True):
        same(mine, other)
    assert got[0].data_ptr() == ours[0].data_ptr()

    def branch(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    run = compiled(branch, fullgraph=True)
    for x in (torch.ones(3), -torch.ones(3)):
        same(run(x.to(FLAGOS)), branch(x))


@pytest.mark.usefixtures("no_compiler")
def test_a_frozen_graph() -> None:
    layer = torch.nn.Linear(4, 4)
    x = torch.randn(2, 4)
    with torch.no_grad(), config.patch(freezing=True):
        same(compiled(copy.deepcopy(layer).to(FLAGOS))(x.to(FLAGOS)), layer(x))


def _drops(x: torch.Tensor) -> torch.Tensor:
    """Drops again in the backward pass. `erf` is in the forward pass alone, `exp` in the other."""

    def drop(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x.sin(), 0.5)

    return checkpoint(drop, x, use_reentrant=False).erf()


def _drops_alike_in_both_passes() -> None:
    x = torch.ones(20, 5, device=FLAGOS, requires_grad=True)
    y = compiled(_drops)(x)
    y.sum().backward()
    kept = y != 0
    assert 0 < kept.float().mean() < 1
    assert torch.equal(x.grad != 0, kept)


@not_in_old("a checkpoint that drops cannot be compiled again for other shapes, on the CPU neither")
@pytest.mark.usefixtures("no_compiler")
def test_random_numbers_are_the_same_in_both_passes_and_follow_the_seed() -> None:
    _drops_alike_in_both_passes()
    draw, x = compiled(_drops), torch.ones(20, device=FLAGOS, requires_grad=True)
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(draw(x).detach().cpu())
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_a_backward_pass_follows_its_eager_forward_pass(
    no_lowering: Callable[[Any], None],
) -> None:
    no_lowering(aten.erf.default)  # only the forward pass has it
    _drops_alike_in_both_passes()


def test_a_backward_pass_that_would_draw_other_numbers_fails(
    no_lowering: Callable[[Any], None],
) -> None:
    x = torch.ones(20, 5, device=FLAGOS, requires_grad=True)
    y = compiled(_drops, dynamic=False)(x)  # else both passes are compiled at once
    no_lowering(aten.exp.default)  # only the backward pass has it
    with pytest.raises(Exception, match="not for this device") as raised:
        y.sum().backward()
    assert "draws again the random numbers" in str(raised.value)


def test_a_copy_of_a_graph_shares_tensors_and_nothing_else() -> None:
    class Branches(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weight = self.weight
            return torch.cond(x.sum() > 0, lambda x: x * weight, lambda x: x - weight, (x,))

    module = Branches()
    x = torch.ones(3)
    graph = torch.export.export(module, (x,)).module()
    assert isinstance(graph, torch.fx.GraphModule)
    copy_ = fallback.copied(graph)
    assert copy_.weight is graph.weight
    assert len([*graph_modules(copy_)]) == len([*graph_modules(graph)]) > 1
    mine = {id(node) for part in graph_modules(copy_) for node in part.graph.nodes}
    assert not mine & {id(node) for part in graph_modules(graph) for node in part.graph.nodes}
    for part in graph_modules(graph):
        part.graph = torch.fx.Graph()
    nodes = [node.op for node in copy_.graph.nodes]
    assert nodes[-1] == "output"
    assert "call_function" in nodes
