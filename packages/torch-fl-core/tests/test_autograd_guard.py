"""Owns: tests of the clear error for `backward()` on a graph of another accelerator."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from children import output_of_child
from torch.autograd import graph

import torch_fl  # noqa: F401  (makes the device)
from torch_fl._compat.autograd_guard import guarded


class Engine:
    """Stands for the engine's entry point: remembers its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __call__(self, t_outputs: Any, *args: Any, **kwargs: Any) -> str:
        self.calls.append(((t_outputs, *args), kwargs))
        return "gradients"


def _root(device: str) -> Any:
    """As much of a tensor as the guard may look at; PyTorch here cannot make a real one."""
    return SimpleNamespace(device=torch.device(device))


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "xpu:0", "mps"])
def test_a_root_on_another_accelerator_is_refused_before_the_engine_runs(
    engine: Engine, device: str
) -> None:
    kind = device.partition(":")[0]
    with pytest.raises(RuntimeError) as caught:
        guarded(engine)((_root(device),), (None,), False)
    text = str(caught.value)
    assert f"backward() was called on a {kind} tensor" in text
    assert "flagos" in text
    assert "import torch_fl" in text
    assert engine.calls == []


def test_one_such_root_among_others_is_enough(engine: Engine) -> None:
    roots = (torch.ones(1), torch.ones(1, device="flagos"), _root("cuda:0"))
    with pytest.raises(RuntimeError, match="cuda"):
        guarded(engine)(roots)
    assert engine.calls == []


@pytest.mark.parametrize("device", ["cpu", "flagos", "flagos:0", "meta"])
def test_other_roots_reach_the_engine_as_they_were_given(engine: Engine, device: str) -> None:
    roots = (torch.ones(2, device=device),)
    result = guarded(engine)(roots, "grads", True, allow_unreachable=True)
    assert result == "gradients"
    ((args, kwargs),) = engine.calls
    assert args[0] is roots
    assert (args[1:], kwargs) == (("grads", True), {"allow_unreachable": True})


def test_no_roots_reach_the_engine(engine: Engine) -> None:
    assert guarded(engine)(()) == "gradients"


def test_roots_given_by_name_are_looked_at(engine: Engine) -> None:
    with pytest.raises(RuntimeError, match="cuda"):
        guarded(engine)(t_outputs=(_root("cuda:0"),))
    assert engine.calls == []


@pytest.mark.parametrize("device", ["cpu", "flagos"])
def test_an_edge_of_the_graph_may_be_a_root(device: str) -> None:
    """backward() takes a GradientEdge where it takes a tensor."""
    x = torch.ones(2, device=device, requires_grad=True)
    edge = graph.get_gradient_edge((x * 3).sum())
    run = guarded(graph._engine_run_backward)
    run((edge,), (torch.ones((), device=device),), False, False, (), accumulate_grad=True)
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 3.0]


def test_the_guard_looks_like_what_it_guards() -> None:
    checked: Any = guarded(graph._engine_run_backward)
    assert checked.__name__ == "_engine_run_backward"
    assert checked.__wrapped__ is graph._engine_run_backward


# What the guard needs of PyTorch.


def test_the_engine_is_entered_where_the_guard_expects_it() -> None:
    parameters = list(inspect.signature(graph._engine_run_backward).parameters)
    assert parameters[0] == "t_outputs"
    for caller in (torch.autograd.backward, torch.autograd.grad):
        assert "_engine_run_backward(" in inspect.getsource(caller)
        assert "_engine_run_backward" in caller.__globals__


ELSEWHERE = """
class Elsewhere(torch.Tensor):
    @property
    def device(self):
        return torch.device("cuda", 0)

elsewhere = torch.ones(2).as_subclass(Elsewhere).requires_grad_()
"""


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this torch has CUDA built in")
def test_the_guard_stays_away_where_torch_has_no_other_accelerator() -> None:
    output_of_child(
        f"""
import torch, torch_fl
assert not torch.backends.cuda.is_built()
{ELSEWHERE}
(elsewhere * 3).sum().backward()
assert elsewhere.grad.tolist() == [3.0, 3.0]
""",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )


def test_installed_it_stands_before_every_way_into_the_engine() -> None:
    """As in a torch that was built for CUDA, with a tensor that says it is there."""
    output_of_child(
        f"""
import torch
torch.backends.cuda.is_built = lambda: True
import torch_fl
{ELSEWHERE}
w = torch.ones(2, device="flagos", requires_grad=True)
(w * 2).sum().backward()
assert torch.autograd.grad((w * 3).sum(), w)[0].tolist() == [3.0, 3.0]
c = torch.ones(2, requires_grad=True)
(c * 2).sum().backward()
ways = {{
    "Tensor.backward": lambda: elsewhere.sum().backward(),
    "autograd.backward": lambda: torch.autograd.backward([w.sum(), elsewhere.sum()]),
    "autograd.grad": lambda: torch.autograd.grad(elsewhere.sum(), elsewhere),
    "batched grad": lambda: torch.autograd.grad(
        elsewhere, elsewhere, torch.ones(1, 2), is_grads_batched=True),
}}
for name, way in ways.items():
    try:
        way()
    except RuntimeError as error:
        text = str(error)
        assert "backward() was called on a cuda tensor" in text, (name, text)
    else:
        raise AssertionError(f"{{name}} reached the engine")
edge = torch.autograd.graph.get_gradient_edge((w * 3).sum())
torch.autograd.backward(edge, torch.ones((), device="flagos"))
assert w.grad.tolist() == [5.0, 5.0] and c.grad.tolist() == [2.0, 2.0]
""",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
