"""Owns: why an operator runs what it runs: the line that decided, and what else there is."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torch_fl.routing import plans
from torch_fl.routing.engine import ENGINE
from torch_fl.routing.errors import Location, RouteError, nearest
from torch_fl.routing.grammar import ROUTES, short
from torch_fl.routing.patterns import Operator, Pattern
from torch_fl.routing.plans import Facts
from torch_fl.routing.table import Clause, Table

__all__ = ["Alternative", "Explanation", "Explanations", "explain"]

_OWN = "nothing names it, so it takes its own route"


@dataclass(frozen=True)
class Alternative:
    """A route that an operator could take, or why it cannot."""

    route: str
    available: bool
    reason: str
    """Empty where it is available."""


@dataclass(frozen=True)
class Explanation:
    """Why calls of one operator, in one dtype, run what they run, in this thread and now."""

    operator: str
    """Name with overload, as in "aten::add.Tensor"."""
    dtype: torch.dtype | None
    """None: calls in a dtype that no line names."""
    chain: tuple[str, ...]
    """The routes that calls try, in turn. What cannot run the operator at all is left out."""
    decided_by: str
    """The layer and the line that decided, or that nothing did."""
    layer: str | None
    """ "plugin", "config", "environment", "set" or "use"; None where nothing was said."""
    location: Location | None
    line: str
    """The line's text."""
    alternatives: tuple[Alternative, ...]

    @property
    def route(self) -> str:
        """What runs first."""
        return self.chain[0] if self.chain else "none"

    def __str__(self) -> str:
        dtype = "" if self.dtype is None else f" [{plans.name_of(self.dtype)}]"
        lines = [
            f"{self.operator}{dtype} -> {', then '.join(self.chain) or 'nothing can run it'}",
            f"  decided by    {self.decided_by}",
        ]
        width = max((len(other.route) for other in self.alternatives), default=0)
        title = "alternatives"
        for other in self.alternatives:
            said = "available" if other.available else other.reason
            lines.append(f"  {title:<12}  {other.route:<{width}}  {said}")
            title = ""
        return "\n".join(lines)

    __repr__ = __str__


class Explanations(tuple[Explanation, ...]):
    """One explanation for each overload that was asked for; prints as text."""

    @property
    def route(self) -> str:
        """What runs first, where that is the same for all overloads.

        Raises:
            ValueError: it is not; ask for one overload.
        """
        found = {one.route for one in self}
        if len(found) != 1:
            names = ", ".join(f"{short(one.operator)}: {one.route}" for one in self)
            raise ValueError(f"The overloads take several routes ({names}); ask for one of them.")
        return found.pop()

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    __repr__ = __str__


def explain(operator: str, dtype: torch.dtype | None = None) -> Explanations:
    """Which kernel runs an operator, which line of which layer decided, and the alternatives.

        >>> torch_fl.routing.explain("mm", dtype=torch.float32)
        aten::mm [float32] -> boxing
          decided by    nothing names it, so it takes its own route
          alternatives  boxing     available
                        ...

    Args:
        operator: a name ("add": all its overloads), or one overload ("add.Tensor").
        dtype: of the first tensor of the calls.

    Raises:
        RouteError: there is no such operator; names the nearest.
    """
    if not isinstance(operator, str):
        raise TypeError(f"operator must be a name such as 'add.Tensor', but is {operator!r}.")
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype must be a torch.dtype, but is {dtype!r}.")
    facts = ENGINE.facts()
    pattern = Pattern(operator if "::" in operator else f"aten::{operator}")
    named = [fact for name, fact in facts.items() if pattern.matches(Operator.of(name))]
    if not named:
        guess = nearest(operator, {short(name) for name in facts})
        raise RouteError(
            f"there is no operator {operator!r}",
            Location("explain"),
            operator,
            0,
            "an operator of this PyTorch",
            guess,
        )
    table = ENGINE.table()
    named.sort(key=lambda fact: fact.name)
    return Explanations(_explain(fact, dtype, table) for fact in named)


def _explain(facts: Facts, dtype: torch.dtype | None, table: Table) -> Explanation:
    if not facts.routable:
        return _fixed(facts, dtype)
    resolution = table.resolve(facts.name, plans.usable(facts))
    clause = resolution.clause(None if dtype is None else plans.name_of(dtype))
    steps = plans.chain(facts, clause, dtype)
    labels = tuple(label for _, label, _ in steps if label)
    return Explanation(
        operator=facts.name,
        dtype=dtype,
        chain=labels,
        decided_by=_decided(clause),
        layer=clause.layer if clause else None,
        location=clause.entry.location if clause else None,
        line=clause.entry.text if clause else "",
        alternatives=_alternatives(facts, dtype),
    )


def _decided(clause: Clause | None) -> str:
    if clause is None:
        return _OWN
    return f"{clause.layer}, {clause.entry.location}: {clause.entry.text.strip()}"


def _fixed(facts: Facts, dtype: torch.dtype | None) -> Explanation:
    if facts.implicit:
        why = "PyTorch makes it of other operators, which have routes of their own"
        chain: tuple[str, ...] = ("composite",)
    elif facts.fixed and facts.own not in ROUTES and facts.own != "core":
        why = "another package has registered a kernel of its own for flagos"
        chain = (facts.own,)
    else:
        why = "the device's own, as memory, copies and views are"
        chain = (facts.own,)
    return Explanation(facts.name, dtype, chain, why, None, None, "", ())


def _alternatives(facts: Facts, dtype: torch.dtype | None) -> tuple[Alternative, ...]:
    found = []
    for route in dict.fromkeys(ENGINE.words().values()):
        offered = plans.offer(facts, route)
        if route not in ROUTES and offered.step is None:
            continue  # somebody's kernels, for other operators
        reason = offered.reason
        if offered.step is not None and dtype is not None and not offered.takes(dtype):
            reason = f"its kernel does not take {plans.name_of(dtype)}"
        found.append(Alternative(route, not reason, reason))
    return tuple(found)
