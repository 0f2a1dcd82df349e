"""Owns: what all layers of routes together say about an operator.

A later layer wins over an earlier one, whatever their patterns. Within a layer the more specific
pattern wins; of the same pattern, a line with dtypes over one without; then the later line. A line
with dtypes answers for these alone: other dtypes go on to the next line, and to earlier layers.
`default` answers for what is left after all layers, that of the latest layer first.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from torch_fl.routing.checks import Operators
from torch_fl.routing.errors import RouteError
from torch_fl.routing.grammar import DEFAULT, Entry
from torch_fl.routing.patterns import Operator, Pattern


@dataclass(frozen=True)
class Clause:
    """One answer: the operator's calls in these dtypes, None for all others, take this chain.

    `entry` is the line that says so, `layer` the name of its layer. `dtypes` can be fewer than
    those of `entry`: what an earlier clause answers is not repeated.
    """

    dtypes: frozenset[str] | None
    chain: tuple[str, ...]
    entry: Entry
    layer: str


@dataclass(frozen=True)
class Resolution:
    """The answers for one operator. No two have a dtype in common, and only the last can be
    without a condition. What no clause answers takes the engine's own default."""

    clauses: tuple[Clause, ...]

    def clause(self, dtype: str | None) -> Clause | None:
        """The answer for a dtype; None is a call in which no dtype is known."""
        for clause in self.clauses:
            if clause.dtypes is None or dtype in clause.dtypes:
                return clause
        return None


@dataclass(frozen=True)
class Layer:
    """Entries from one source: "plugin", "config", "environment", "set" or "use".

    Sorting and compiling them is done once for a layer, however many tables it is part of.
    """

    name: str
    entries: tuple[Entry, ...]

    @cached_property
    def _index(self) -> _Index:
        return _Index(self)


class _Index:
    """The entries of a layer in the order in which they are asked."""

    def __init__(self, layer: Layer) -> None:
        self.defaults: list[Clause] = []
        self._named: dict[str, list[tuple[Pattern, Clause]]] = defaultdict(list)
        self._wild: list[tuple[Pattern, Clause]] = []
        ranked = [
            (pattern.specificity, entry.dtypes is not None, position, pattern, entry)
            for position, entry in enumerate(layer.entries)
            for pattern in [Pattern(entry.pattern)]
        ]
        for *_, pattern, entry in sorted(ranked, key=lambda item: item[:3], reverse=True):
            clause = Clause(entry.dtypes, entry.chain, entry, layer.name)
            if entry.pattern == DEFAULT:
                self.defaults.append(clause)
            elif pattern.exact_name:
                self._named[pattern.name].append((pattern, clause))
            else:
                self._wild.append((pattern, clause))
        # One expression finds the first of all wildcards that matches. Groups are numbered by
        # their opening; the last one to close is the outermost, and tells which it was.
        self._wild_at: dict[int, int] = {}
        group = 1
        for position, (pattern, _) in enumerate(self._wild):
            self._wild_at[group] = position
            group += 1 + pattern.expression.groups
        parts = (f"({pattern.expression.pattern})" for pattern, _ in self._wild)
        self._first_wild = re.compile("|".join(parts)) if self._wild else None

    def clauses(self, operator: Operator) -> Iterator[Clause]:
        for pattern, clause in self._named.get(operator.name, ()):
            if pattern.matches_overload(operator.overload):
                yield clause
        if self._first_wild is None:
            return
        found = self._first_wild.match(operator.full)
        if found is None or found.lastindex is None:
            return
        first = self._wild_at[found.lastindex]
        yield self._wild[first][1]
        for pattern, clause in self._wild[first + 1 :]:
            if pattern.matches(operator):
                yield clause


class Table:
    """Layers of routes, the earliest first."""

    def __init__(self, layers: Iterable[Layer]) -> None:
        self.layers = tuple(layers)
        self._indices = [layer._index for layer in reversed(self.layers)]

    def resolve(self, operator: str, usable: Callable[[Clause], bool] | None = None) -> Resolution:
        """What is said about an operator, such as "aten::add.Tensor" or "aten::mm".

        An answer that is not `usable` (no route of its chain can run the operator) is passed over.
        """
        answered: frozenset[str] = frozenset()
        clauses = []
        for clause in self._clauses(Operator.of(operator)):
            if usable is not None and not usable(clause):
                continue
            if clause.dtypes is None:
                clauses.append(clause)
                break
            if rest := clause.dtypes - answered:
                clauses.append(clause if rest == clause.dtypes else replace(clause, dtypes=rest))
                answered |= rest
        return Resolution(tuple(clauses))

    def _clauses(self, operator: Operator) -> Iterator[Clause]:
        for index in self._indices:
            yield from index.clauses(operator)
        for index in self._indices:
            yield from index.defaults

    def check(self, known: Iterable[str], implicit: Iterable[str]) -> None:
        """Refuses entries that can have no effect.

        Args:
            known: all operators of this PyTorch.
            implicit: those that are CompositeImplicitAutograd. They need not be among `known`.

        Raises:
            RouteError: the first of `problems`.
        """
        for _, error in self.problems(known, implicit):
            raise error

    def problems(
        self, known: Iterable[str], implicit: Iterable[str]
    ) -> Iterator[tuple[Layer, RouteError]]:
        """The entries that can have no effect, and why: they match no operator, or none that can
        have a kernel. For the arguments see `check`."""
        operators = Operators(known, implicit)
        for layer in self.layers:
            for entry in layer.entries:
                if error := operators.problem(entry):
                    yield layer, error
