"""Owns: random operators that a backward pass repeats, with the state that the forward pass had.

Activation checkpointing puts such an operator between two of PyTorch's that keep the generator's
state and give it back; they know the generators of some devices by name. On the host a call of them
becomes one operator of ours that does both with flagos' generator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from torch_fl.compile.renaming import graph_modules

SAVES = "+saves"
RESTORES = "+restores"

# PyTorch's names, and ours for the forms of an operator.
_FORMS = {"run_and_save_rng_state": SAVES, "run_with_rng_state": RESTORES}


def form(target: Any) -> str:
    """Which of the two a graph's node calls, empty for none."""
    if isinstance(target, torch._ops.HigherOrderOperator):
        return _FORMS.get(target.name(), "")
    return ""


def sized(graph: GraphModule, inputs: Sequence[Any]) -> list[Any]:
    """Gives states in a graph the size that flagos' have, and returns the graph's inputs with them:
    what puts the operators into a graph takes the states of devices that it does not know for the
    CPU's."""
    placed = dict(zip(graph.graph.find_nodes(op="placeholder"), inputs, strict=False))
    for module in graph_modules(graph):
        for node in module.graph.nodes:
            if form(node.target) == SAVES:
                states = [user for user in node.users if user.args == (node, 0)]
            elif form(node.target) == RESTORES:
                states = [node.args[0]]
            else:
                continue
            for state in states:
                fake = state.meta["val"] = _state_like(state.meta["val"])
                if state in placed:
                    placed[state] = fake
    return [*placed.values(), *inputs[len(placed) :]]


def _state_like(fake: torch.Tensor) -> torch.Tensor:
    size = torch.get_device_module("flagos").get_rng_state(0).numel()
    # A size may be a symbol that no argument of the graph has: comparing it would leave a guard
    # that nothing can check.
    known = fake.shape[0]
    return fake if isinstance(known, int) and known == size else fake.new_empty(size)


def signature(arguments: str, form: str) -> str:
    """The signature, as a schema has it after the name, of an operator's form."""
    if form == SAVES:
        given, _, results = arguments.rpartition(" -> ")
        return f"{given} -> (Tensor, {results})"
    if form == RESTORES:
        comma = "" if arguments.startswith("()") else ", "
        return f"(Tensor rng_state{comma}{arguments.removeprefix('(')}"
    return arguments


def around(call: Callable[..., Any], form: str, index: int) -> Callable[..., Any]:
    """`call`, which draws from the generator of flagos device `index`, in a form."""
    module = torch.get_device_module("flagos")

    def saves(*args: Any, **kwargs: Any) -> Any:
        state = module.get_rng_state(index)
        return state, call(*args, **kwargs)

    def restores(rng_state: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        now = module.get_rng_state(index)
        module.set_rng_state(rng_state, index)
        try:
            return call(*args, **kwargs)
        finally:
            module.set_rng_state(now, index)

    return {SAVES: saves, RESTORES: restores}.get(form, call)


def fake_around(fake: Callable[..., Any], form: str, index: int) -> Callable[..., Any]:
    """The same for what an operator's results look like."""

    def saves(*args: Any, **kwargs: Any) -> Any:
        size = torch.get_device_module("flagos").get_rng_state(index).numel()
        return torch.empty(size, dtype=torch.uint8, device="cpu"), fake(*args, **kwargs)

    def restores(rng_state: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return fake(*args, **kwargs)

    return {SAVES: saves, RESTORES: restores}.get(form, fake)
