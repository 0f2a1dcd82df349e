"""Owns: which operators somebody has routed elsewhere than to their own kernel, by name.

A compiler writes kernels of its own for the operators of a graph, or calls the target's. Who names
an operator in a routes file, a FLAGOS_OP_* variable or `routing.set` wants something else to run
it, compiled or not. `default` names no operator, and a plugin's own routes are its choices for
eager programs: neither takes an operator away from the compiler.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch_fl.routing import plans
from torch_fl.routing.engine import ENGINE
from torch_fl.routing.grammar import DEFAULT
from torch_fl.routing.patterns import Operator, Pattern
from torch_fl.routing.table import Clause

# What the compiler does anyway: it composes of other operators, or takes the target's kernel.
_AS_COMPILED = ("boxing", "composite")


def names() -> frozenset[str]:
    """The operators that must stay calls, such as "aten::mm"."""
    table = ENGINE.table()
    patterns = [
        Pattern(entry.pattern)
        for layer in table.layers
        for entry in layer.entries
        if layer.name != "plugin" and entry.pattern != DEFAULT
    ]
    if not patterns:
        return frozenset()
    found = []
    for name, facts in ENGINE.facts().items():
        operator = Operator.of(name)
        if not facts.routable or not any(pattern.matches(operator) for pattern in patterns):
            continue
        clauses = table.resolve(name, plans.usable(facts)).clauses
        if any(_says_otherwise(clause, facts) for clause in clauses):
            found.append(name)
    return frozenset(found)


def _says_otherwise(clause: Clause, facts: plans.Facts) -> bool:
    if clause.layer == "plugin" or clause.entry.pattern == DEFAULT:
        return False
    first = next(_kinds(clause, facts), facts.own)
    return first != facts.own and first not in _AS_COMPILED


def _kinds(clause: Clause, facts: plans.Facts) -> Iterator[str]:
    for route in clause.chain:
        offered = plans.offer(facts, route)
        if offered.step is not None:
            yield offered.step[0]
