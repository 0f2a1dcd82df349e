"""Owns: from what the layers say about an operator to the plan that its calls follow.

A plan has a chain for each dtype. A route that cannot carry out the operator at all is left out,
and so is what stands behind a route that never refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from torch_fl.routing import kernels
from torch_fl.routing.grammar import DTYPES
from torch_fl.routing.table import Clause, Resolution

Step = tuple[str, str, str | None]
"""Route, label, and the operator that carries the kernel: as the engine takes them."""
Chain = tuple[Step, ...]
Plan = tuple[tuple[Chain, ...], tuple[tuple[torch.dtype, int], ...]]
"""The chains, and which of them each dtype takes; dtypes that are not named take the first."""

NATIVE = "native"
REFUSING = ("kernel", "target kernel")  # what is called and may say that it does not support a call


@dataclass(frozen=True)
class Facts:
    """What PyTorch says about an operator. `own`: the route it takes where nobody says anything."""

    name: str
    own: str
    fixed: bool
    implicit: bool
    boxing: bool
    composite: bool
    cpu: bool

    @property
    def routable(self) -> bool:
        """Whether its calls reach a device at all, and are not the device's own business."""
        return not self.fixed and not self.implicit and self.own != "core"


@dataclass(frozen=True)
class Offer:
    """A route for an operator: its step, with the dtypes it is limited to, or why there is none."""

    route: str
    step: Step | None
    reason: str = ""
    dtypes: frozenset[torch.dtype] | None = None

    def takes(self, dtype: torch.dtype | None) -> bool:
        """Whether calls in a dtype may take it."""
        return self.step is not None and (self.dtypes is None or dtype in self.dtypes)


Usable = Callable[[Clause], bool]

TORCH_DTYPES = tuple(
    found
    for name in dict.fromkeys(DTYPES.values())
    if isinstance(found := getattr(torch, name, None), torch.dtype)
)


def name_of(dtype: torch.dtype) -> str:
    """The word for a dtype in routes: "int64"."""
    return str(dtype).removeprefix("torch.")


def offer(facts: Facts, route: str) -> Offer:
    """What a route has for an operator."""
    if route == "cpu":
        reason = "" if facts.cpu else "the CPU has no kernel for it, or not from the same numbers"
        return Offer(route, ("cpu", "cpu", None) if facts.cpu else None, reason)
    if route == "boxing":
        if not facts.boxing and facts.composite:
            return Offer(route, ("composite", "composite", None))  # as on the target
        reason = "" if facts.boxing else "the target has no kernel for it"
        return Offer(route, ("boxing", "boxing", None) if facts.boxing else None, reason)
    if route == "composite":
        reason = "" if facts.composite else "PyTorch does not compose it of other operators"
        return Offer(route, ("composite", "composite", None) if facts.composite else None, reason)
    if route == NATIVE and NATIVE not in kernels.providers():
        return Offer(route, None, "this backend brings no kernels of its own")
    found = kernels.find(route, facts.name)
    if isinstance(found, str):
        return Offer(route, None, found)
    kind = "target kernel" if found.on_target else "kernel"
    return Offer(route, (kind, route, found.operator), "", found.dtypes)


def usable(facts: Facts) -> Usable:
    """For `Table.resolve`: whether any route of an answer can carry out the operator."""
    return lambda clause: any(offer(facts, route).step for route in clause.chain)


def chain(facts: Facts, clause: Clause | None, dtype: torch.dtype | None) -> Chain:
    """The steps of calls in one dtype, by the clause that answers for it; never empty."""
    own = _own(facts)
    if clause is None:
        return (own,)
    return tuple(_until_certain(facts, clause, dtype)) or (own,)


def _own(facts: Facts) -> Step:
    # (What nothing can run is installed as boxing, which says so.)
    route = facts.own or "boxing"
    return (route, route, None)


def _until_certain(facts: Facts, clause: Clause, dtype: torch.dtype | None) -> Iterator[Step]:
    for route in clause.chain:
        offered = offer(facts, route)
        if offered.step is None or not offered.takes(dtype):
            continue
        yield offered.step
        if offered.step[0] not in REFUSING:
            return


def plan(facts: Facts, resolution: Resolution) -> Plan | None:
    """The plan of an operator; None where it does what it would without one."""
    chains: dict[Chain, int] = {chain(facts, resolution.clause(None), None): 0}
    by_dtype = []
    for dtype in _distinguished(facts, resolution):
        steps = chain(facts, resolution.clause(name_of(dtype)), dtype)
        number = chains.setdefault(steps, len(chains))
        if number:
            by_dtype.append((dtype, number))
    if tuple(chains) == ((_own(facts),),):
        return None
    return tuple(chains), tuple(by_dtype)


def _distinguished(facts: Facts, resolution: Resolution) -> Iterator[torch.dtype]:
    """The dtypes in which calls may go another way than in all others."""
    named: set[str] = set()
    limits: set[torch.dtype] = set()
    for clause in resolution.clauses:
        named |= clause.dtypes or frozenset()
        for route in clause.chain:
            limits |= offer(facts, route).dtypes or frozenset()
    return (dtype for dtype in TORCH_DTYPES if dtype in limits or name_of(dtype) in named)
