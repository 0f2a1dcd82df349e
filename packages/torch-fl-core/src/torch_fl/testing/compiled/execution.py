"""Owns: one graph, eagerly and compiled."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch._inductor.config
from torch._dynamo.utils import counters
from torch.utils import _pytree as pytree

from .comparison import differences
from .operators import counted
from .program import Graph, Place, Program

__all__ = ["GOOD", "RAISES", "Result", "execute"]

EQUAL, CLOSE, DIFFERS, RAISES = "equal", "close", "differs", "raises"
GOOD = (EQUAL, CLOSE)


@dataclasses.dataclass
class Result:
    """What came out. `verdict`: "equal" to the last bit, "close", "differs" or "raises"; the first
    two are good. `breaks`: graph breaks. `inductor`: graphs that Inductor compiled, or found in its
    cache. `seconds`: of the compiled run, with compilation and comparison. `limit`: why PyTorch
    itself may do it wrong, whatever the verdict. `operators`: how often Inductor's graphs hold
    each, None where the compiled run raises."""

    name: str
    device: str
    verdict: str
    seconds: float = 0.0
    breaks: int = 0
    inductor: int = 0
    notes: list[str] = dataclasses.field(default_factory=list)
    limit: str = ""
    operators: dict[str, int] | None = None

    @property
    def good(self) -> bool:
        return self.verdict in GOOD


def execute(graph: Graph, device: str, backend: str = "inductor") -> Result:
    """Runs a graph on a device. Whatever it raises is its result."""
    torch._dynamo.reset()
    counters.clear()
    result = Result(graph.name, device, RAISES, limit=graph.limit)
    try:
        program = graph.build(Place(device, graph.name))
        with torch.compiler.set_stance("force_eager"):
            expected = _run(program, program.function)
    except Exception as error:
        result.notes = ["eagerly: " + _said(error)]
        return result
    begin = time.perf_counter()
    try:
        program = graph.build(Place(device, graph.name))
        compiled = _compiled(program, backend)
        with torch._inductor.config.patch(program.settings), counted() as operators:
            got = _run(program, compiled)
            again = _run(program, compiled) if program.random else None
        result.operators = dict(sorted(operators.items()))
        equal, notes = _compare(program, got, again, expected)
    except Exception as error:
        result.notes = [_said(error)]
        return result
    finally:
        result.seconds = round(time.perf_counter() - begin, 3)
        result.breaks = sum(counters["graph_break"].values())
        result.inductor = _inductor_graphs()
    result.notes = notes
    result.verdict = DIFFERS if result.notes else EQUAL if equal else CLOSE
    return result


def _compiled(program: Program, backend: str) -> Any:
    options = program.options or None
    return torch.compile(
        program.function, backend=backend, dynamic=program.dynamic, options=options
    )


def _said(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:4])}"[:800]


def _inductor_graphs() -> int:
    """Graphs that went through Inductor, or came compiled from a cache of its or of autograd's."""
    kinds = ("fxgraph_cache_miss", "fxgraph_cache_hit", "fxgraph_cache_bypass")
    return sum(counters["inductor"][kind] for kind in kinds) + int(
        counters["aot_autograd"]["autograd_cache_hit"]
    )


def _run(program: Program, function: Any) -> dict[str, Any]:
    """All that a run leaves behind, copied where later calls could change it."""
    torch.manual_seed(7)
    before = torch.get_rng_state()
    seen: dict[str, Any] = {"results": [], "aliases": [], "gradients": []}
    if program.raises is not None:
        try:
            function(*program.calls[0])
        except program.raises:
            seen["raised"] = program.raises.__name__
            return seen
        raise AssertionError(f"{program.raises.__name__} was not raised")
    for arguments in program.calls:
        results = function(*arguments)
        seen["results"].append(_copied(results))
        seen["aliases"].append(_aliases([results, arguments]))
        if program.gradients:
            seen["gradients"].append(_gradients(program, results, arguments))
    seen["arguments"] = _copied(list(program.calls))
    seen["state"] = _copied([_state(one) for one in program.state])
    seen["host's generator untouched"] = torch.equal(before, torch.get_rng_state())
    return seen


def _copied(values: Any) -> Any:
    def copy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        made = value.detach().clone()
        return made.requires_grad_(value.requires_grad)

    return pytree.tree_map(copy, values)


def _state(one: Any) -> Any:
    return dict(one.state_dict(keep_vars=True)) if isinstance(one, torch.nn.Module) else one


def _aliases(values: Any) -> list[int]:
    """For each tensor the first one that has the same memory."""
    first: dict[tuple[Any, int], int] = {}
    found = []
    for index, value in enumerate(pytree.tree_leaves(values)):
        if isinstance(value, torch.Tensor) and value.layout == torch.strided and value.numel():
            memory = (value.device, value.untyped_storage().data_ptr())
            found.append(first.setdefault(memory, index))
    return found


def _gradients(program: Program, results: Any, arguments: Any) -> list[Any]:
    """Of a weighted sum of the results; those of earlier calls go on adding up in the state."""
    loss: Any = None
    for value in pytree.tree_leaves(results):
        if isinstance(value, torch.Tensor) and value.grad_fn is not None:
            weight = torch.arange(value.numel(), device="cpu").view(value.shape).cos() + 1.5
            part = (value * weight.to(value.device, value.real.dtype)).sum().abs().float().cpu()
            loss = part if loss is None else loss + part
    loss.backward()
    leaves = [*_leaves(arguments), *_leaves([_state(one) for one in program.state])]
    gradients = [None if leaf.grad is None else leaf.grad.clone() for leaf in leaves]
    for leaf in _leaves(arguments):
        leaf.grad = None
    return gradients


def _leaves(values: Any) -> Iterator[torch.Tensor]:
    for value in pytree.tree_leaves(values):
        if isinstance(value, torch.Tensor) and value.requires_grad and value.is_leaf:
            yield value


def _compare(program: Program, got: Any, again: Any, expected: Any) -> tuple[bool, list[str]]:
    if program.random:
        equal, notes = _self_consistent(program, got, again)
        got, expected = _described(got), _described(expected)
    else:
        equal, notes = True, []
    for key in expected:
        same, found = differences(got.get(key), expected[key], program.tolerance)
        equal = equal and same
        notes += [f"{key}, {note}" for note in found]
    return equal, notes


def _self_consistent(program: Program, got: Any, again: Any) -> tuple[bool, list[str]]:
    """The same seed gives the same numbers, and the next call others."""
    equal, notes = True, []
    for key in ("results", "gradients"):
        same, found = differences(again[key], got[key], 0.0)
        equal = equal and same
        notes += [f"{key} under the same seed, {note}" for note in found]
    results = got["results"]
    if len(results) > 1 and differences(results[1], results[0], 0.0)[0]:
        notes.append("two calls drew the same numbers")
    return equal, notes


def _described(seen: dict[str, Any]) -> dict[str, Any]:
    def zero(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return torch.zeros_like(value, requires_grad=value.requires_grad)

    described: dict[str, Any] = pytree.tree_map(zero, seen)
    return described
