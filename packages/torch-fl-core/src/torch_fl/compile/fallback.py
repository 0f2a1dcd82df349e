"""Owns: FLAGOS_COMPILE_FALLBACK_EAGER: a graph that Inductor cannot compile runs eagerly on flagos.

What fails is one graph after autograd: a forward or a backward pass. Its copy, made before the
compiler changed it, is run operator by operator; all other graphs stay compiled.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node

from torch_fl import settings
from torch_fl.compile import regions
from torch_fl.compile.renaming import FLAGOS, graph_modules, mentions

log = logging.getLogger("torch_fl.compile")

_SWITCH = settings.FLAGOS_COMPILE_FALLBACK_EAGER.name
_count = itertools.count()
_eager_forwards: set[int] = set()  # Inductor's numbers of graphs whose forward pass runs eagerly

# By the class of what failed: what a user can do.
_ADVICE = {
    "InvalidCxxCompiler": "Install a C++ compiler (g++ or clang++), or name it in CXX.",
    "CppCompileError": "Check that the C++ compiler which CXX names works and has OpenMP. If it "
    "does, a file in the folder of TORCHINDUCTOR_CACHE_DIR may be damaged: delete that folder.",
    "TritonMissing": "Install a Triton that has this accelerator's target.",
    "GPUTooOldForTriton": "This accelerator is too old for the Triton that is installed.",
    "MissingOperatorWithDecomp": "Inductor has no lowering for an operator of this graph.",
    "MissingOperatorWithoutDecomp": "Inductor has no lowering for an operator of this graph.",
}
_ADVICE_OTHERWISE = "TORCH_LOGS=+inductor shows what Inductor did."


@dataclass(frozen=True)
class Spare:
    """The copy of a graph. `run`: calls it with a list of tensors, which it empties."""

    graph: GraphModule
    run: Callable[[list[Any]], Any]


def concerns(graph: GraphModule) -> bool:
    """Whether a graph that is to be compiled is one of flagos."""
    return mentions(graph, FLAGOS) or regions.pending() is not None


def spare(graph: GraphModule) -> Spare | None:
    """A copy of a graph on flagos, which shares its tensors; None where the switch is off."""
    if not settings.FLAGOS_COMPILE_FALLBACK_EAGER.read():
        return None
    mine = copied(graph)
    _draw_from_seeds(mine)
    call = _runner(mine)
    frozen = regions.pending()
    # A frozen graph has the target's constants already.
    return Spare(mine, regions.bounded(call, frozen.mark) if frozen else call)


def is_decided(spare: Spare, *, backward: bool, number: int | None) -> bool:
    """Whether a graph has to run eagerly, however well it compiles: a backward pass that draws
    again what its eager forward pass drew."""
    return backward and number in _eager_forwards and any(map(_draws, _nodes(spare.graph)))


def instead(spare: Spare, error: Exception, *, backward: bool, number: int | None) -> Any:
    """What runs instead of a graph that failed. Raises the error, explained, where that would be
    wrong: a backward pass that draws again what its compiled forward pass drew."""
    if backward and number not in _eager_forwards and any(map(_draws, _nodes(spare.graph))):
        _say(
            error,
            "It cannot run eagerly instead: it draws again the random numbers that the compiled "
            "forward pass drew, and eager operators would draw others.",
        )
        raise error
    if not backward and number is not None:
        _eager_forwards.add(number)
    log.warning(
        "Inductor could not compile the %s graph %d (%d operators), which runs eagerly on flagos "
        "instead, because %s is set. Reason: %s %s",
        "backward" if backward else "forward",
        next(_count),
        sum(node.op == "call_function" for node in spare.graph.graph.nodes),
        _SWITCH,
        _summary(error),
        _advice(error),
    )
    return spare.run


def explain(error: Exception) -> None:
    """Adds a sentence on the switch to an error of the compiler's."""
    if _SWITCH not in str(error):
        _say(
            error,
            f"{_SWITCH}=1 lets graphs that fail to compile run eagerly on flagos. {_advice(error)}",
        )


def copied(graph: GraphModule) -> GraphModule:
    """A graph and those inside it, with the same tensors."""
    parts: dict[str, Any] = {}
    for node in graph.graph.nodes:
        if node.op in ("get_attr", "call_module"):
            part = _attribute(graph, node.target)
            parts[node.target] = copied(part) if isinstance(part, GraphModule) else part
    nodes = Graph()
    values: dict[Node, Any] = {}
    result = nodes.graph_copy(graph.graph, values, return_output_node=True)
    if isinstance(result, tuple):
        value, old = result
        new = nodes.output(value)
        new.meta = dict(old.meta)
    copy = GraphModule(parts, nodes)
    copy.meta.update(graph.meta)
    return copy


def _attribute(graph: GraphModule, target: str) -> Any:
    found: Any = graph
    for name in target.split("."):
        found = getattr(found, name)
    return found


def _runner(graph: GraphModule) -> Callable[[list[Any]], Any]:
    def run(arguments: list[Any]) -> Any:
        return Interpreter(graph).boxed_run(arguments)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


# Random numbers: a forward and a backward pass draw the same ones from a seed that the first hands
# to the second. Compiled code does; PyTorch's eager stand-ins of these operators ignore their seed.


def _draw_from_seeds(graph: GraphModule) -> None:
    for module in graph_modules(graph):
        for node in filter(_draws, module.graph.nodes):
            node.target = _random if node.target in _of("inductor_random") else _randint
        module.recompile()


def _nodes(graph: GraphModule) -> Iterable[Node]:
    return (node for module in graph_modules(graph) for node in module.graph.nodes)


def _draws(node: Node) -> bool:
    return node.op == "call_function" and node.target in (
        *_of("inductor_random"),
        *_of("inductor_randint"),
        _random,
        _randint,
    )


def _of(name: str) -> tuple[Any, ...]:
    packet = getattr(torch.ops.prims, name, None)
    return (packet, packet.default) if packet is not None else ()


def _random(size: list[int], seed: torch.Tensor, mode: str, *, offset: int = 0) -> torch.Tensor:
    draw = torch.rand if mode == "rand" else torch.randn
    return draw(size, generator=_generator(seed, offset), device=seed.device)


def _randint(
    low: int, high: int, size: list[int], seed: torch.Tensor, *, offset: int = 0
) -> torch.Tensor:
    generator = _generator(seed, offset)
    return torch.randint(low, high, size, generator=generator, device=seed.device)


def _generator(seed: torch.Tensor, offset: int) -> torch.Generator:
    return torch.Generator(seed.device).manual_seed((int(seed) + offset) % 2**63)


def _say(error: Exception, sentence: str) -> None:
    if error.args and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]}\n\n{sentence}", *error.args[1:])


def _summary(error: BaseException) -> str:
    inner = _innermost(error)
    lines = str(inner).strip().splitlines()
    return f"{type(inner).__name__}: {lines[0] if lines else ''}".strip()


def _advice(error: BaseException) -> str:
    return _ADVICE.get(type(_innermost(error)).__name__, _ADVICE_OTHERWISE)


def _innermost(error: BaseException) -> BaseException:
    while (inner := getattr(error, "inner_exception", None)) is not None:
        error = inner
    return error
