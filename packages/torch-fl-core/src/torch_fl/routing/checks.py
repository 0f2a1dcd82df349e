"""Owns: which lines can have no effect, and why: they name no operator, or none with a route.

PyTorch makes some operators of others (CompositeImplicitAutograd) and differentiates those. With a
kernel of their own they would lose autograd, so they have no route.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from torch_fl.routing.errors import RouteError, alternatives, nearest, quoted
from torch_fl.routing.grammar import DEFAULT, Entry, short
from torch_fl.routing.patterns import Operator, Pattern


class Operators:
    """The operators that exist.

    Args:
        known: all of them, such as "aten::add.Tensor".
        implicit: those that are CompositeImplicitAutograd. They need not be among `known`.
    """

    def __init__(self, known: Iterable[str], implicit: Iterable[str]) -> None:
        self._implicit = frozenset(map(Operator.of, implicit))
        self._all = self._implicit.union(map(Operator.of, known))
        self._overloads: dict[str, set[str]] = defaultdict(set)
        for name, overload in self._all:
            self._overloads[name].add(overload)

    def problem(self, entry: Entry, *, later: bool = True) -> RouteError | None:
        """Why an entry can have no effect; None when it can.

        `later`: operators of a library that is not imported yet are no mistake.
        """
        if entry.pattern == DEFAULT:
            return None
        pattern = Pattern(entry.pattern)
        found = self._matching(pattern)
        if not found:
            awaited = later and self._awaited(pattern)
            return None if awaited else self._unknown(entry, pattern)
        # What takes `out=` has often a kernel where the operator itself has none.
        meant = {operator for operator in found if not operator.overload.endswith("out")} or found
        return _unroutable(entry) if meant <= self._implicit else None

    def _awaited(self, pattern: Pattern) -> bool:
        """Whether the operators may be those of a library that is imported later."""
        namespace = pattern.name.partition("::")[0]
        return not any(name.startswith(f"{namespace}::") for name in self._overloads)

    def _matching(self, pattern: Pattern) -> set[Operator]:
        if not pattern.exact_name:
            return {operator for operator in self._all if pattern.matches(operator)}
        return {
            Operator(pattern.name, overload)
            for overload in self._overloads.get(pattern.name, ())
            if pattern.matches_overload(overload)
        }

    def _unknown(self, entry: Entry, pattern: Pattern) -> RouteError:
        name, overload = short(pattern.name), pattern.overload or ""
        if overloads := sorted(self._overloads.get(pattern.name, ())):
            guess = nearest(overload, overloads)
            return _error(
                entry,
                f"no overload of {quoted(name)} is {quoted(overload)}",
                alternatives(overloads),
                guess and f"{name}.{guess}",
            )
        if pattern.exact_name:
            problem = f"there is no operator {quoted(short(entry.pattern))}"
            expected = "an operator of this PyTorch"
        else:
            problem = f"{quoted(short(entry.pattern))} matches no operator"
            expected = "a pattern that matches one"
        letters = name.replace("*", "").replace("?", "")
        return _error(entry, problem, expected, nearest(letters, map(short, self._overloads)))


def _unroutable(entry: Entry) -> RouteError:
    return _error(
        entry,
        f"{quoted(short(entry.pattern))} cannot be routed: PyTorch makes it of other operators "
        f"(CompositeImplicitAutograd), and a kernel of its own would lose autograd",
        "the operators that it calls",
    )


def _error(entry: Entry, problem: str, expected: str, guess: str | None = None) -> RouteError:
    return RouteError(problem, entry.location, entry.text, 0, expected, guess)
