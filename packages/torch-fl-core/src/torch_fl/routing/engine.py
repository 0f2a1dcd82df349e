"""Owns: the routes in force: layers put together, plans made of them, and given to the operators.

Routes can change at any time and from any thread, with calls under way. Nothing here runs in a
call: what an operator does is decided when a route changes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ContextDecorator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from torch_fl import _C
from torch_fl.plugins import selection
from torch_fl.plugins.spec import AbiRuntime, Routes
from torch_fl.routing import environment, files, kernels, plans
from torch_fl.routing.errors import RouteError
from torch_fl.routing.grammar import DEFAULT, Entry, Words, parse_entry, short
from torch_fl.routing.patterns import Pattern
from torch_fl.routing.plans import Facts, Plan
from torch_fl.routing.table import Layer, Table

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

Function = Callable[..., object]
Chain = str | Function | Iterable[str | Function]
"""A chain as text ("flaggems, cpu"), a function, or routes and functions in turn."""

_log = logging.getLogger("torch_fl.routing")
_inner: ContextVar[tuple[Layer, ...]] = ContextVar("flagos_routes", default=())


class Engine:
    """The routes of the process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._below: tuple[Layer, ...] = ()  # the plugin's, the configuration's, the environment's
        self._set: dict[tuple[str, frozenset[str] | None], Entry] = {}
        self._facts: dict[str, Facts] = {}
        self._applied: dict[str, Plan] = {}
        self._functions = 0

    # -- what there is

    def words(self) -> Words:
        """The words for routes, aliases and registered providers among them."""
        chosen = selection.current()
        if chosen.plugin is None:
            return kernels.words({})
        native = isinstance(chosen.runtime, AbiRuntime)
        return kernels.words({chosen.plugin.name: "native" if native else "boxing"})

    def facts(self) -> dict[str, Facts]:
        """All operators of this process. Read anew when operators have been registered since."""
        with self._lock:
            rows = _C.operators()
            if len(rows) != len(self._facts):
                self._facts = {row[0]: Facts(*row) for row in rows}
            return self._facts

    def table(self) -> Table:
        """The layers that answer in this thread, the earliest first."""
        return self._table((*self._outer(), *_inner.get()))

    def _outer(self) -> tuple[Layer, ...]:
        return (*self._below, Layer("set", tuple(self._set.values())))

    @staticmethod
    def _table(layers: Iterable[Layer]) -> Table:
        return Table(layer for layer in layers if layer.entries)

    # -- changing it

    def start(self, routes: Routes) -> None:
        """Puts the plugin's, the configuration's and the environment's routes in force.

        Raises RouteError for the first mistake in them; then nothing has changed.
        """
        with self._lock:
            below: list[Layer] = []
            if routes.defaults is not None:
                below.append(Layer("plugin", files.load(routes.defaults, words=self.words())))
            profiles = routes.profiles
            below += environment.layers(self.facts(), words=self.words(), profiles=profiles)
            self._change(tuple(below), self._set)

    def set(self, routes: Mapping[str, Chain | None]) -> None:
        """See `torch_fl.routing.set`."""
        with self._lock:
            changed = dict(self._set)
            for pattern, chain in routes.items():
                removing = chain is None
                entry = self._entry(pattern, "boxing" if chain is None else chain, "routing.set")
                changed = {
                    key: other
                    for key, other in changed.items()
                    if key != (entry.pattern, entry.dtypes)
                    and not (key[0] == entry.pattern and entry.dtypes is None)
                }
                if not removing:
                    changed[entry.pattern, entry.dtypes] = entry
            self._change(self._below, changed)

    def reset(self) -> None:
        """See `torch_fl.routing.reset`."""
        with self._lock:
            self._change(self._below, {})

    def _change(
        self,
        below: tuple[Layer, ...],
        changed: dict[tuple[str, frozenset[str] | None], Entry],
    ) -> None:
        layers = (*below, Layer("set", tuple(changed.values())))
        table = self._table(layers)
        wanted = self._plans(table)
        for name in self._applied.keys() - wanted.keys():
            _C.set_plan(name, None)
        for name, plan in wanted.items():
            if self._applied.get(name) != plan:
                _C.set_plan(name, plan)
        self._below, self._set, self._applied = below, changed, wanted

    def _plans(self, table: Table) -> dict[str, Plan]:
        if not table.layers:
            return {}
        facts = self.facts()
        self._check(table, facts)
        found = {}
        for name, fact in facts.items():
            if not fact.routable:
                continue
            plan = plans.plan(fact, table.resolve(name, plans.usable(fact)))
            if plan is not None:
                found[name] = plan
        return found

    def _check(self, table: Table, facts: Mapping[str, Facts]) -> None:
        """Refuses what can have no effect: unknown operators, and named ones without a route."""
        implicit = [name for name, fact in facts.items() if fact.implicit]
        for layer, error in table.problems(facts, implicit):
            if layer.name != "plugin":
                raise error
            # A plugin's file is for several torch versions, which do not have the same operators.
            _log.info("Without effect in this torch: %s", error)
        for layer in table.layers:
            for entry in layer.entries:
                _check_named(entry, facts)

    def _entry(self, pattern: str, chain: Chain, source: str) -> Entry:
        routes = [chain] if isinstance(chain, str) or callable(chain) else list(chain)
        named = [
            route if isinstance(route, str) else self._name(pattern, route) for route in routes
        ]
        return parse_entry(pattern, ", ".join(named), source, words=self.words())

    def _name(self, pattern: str, function: Function) -> str:
        """The word for a function that was given as a route."""
        plain = Pattern(parse_entry(pattern, "boxing", "a route", words=self.words()).pattern)
        meant = [name for name in self.facts() if _matches(plain, name)]
        name = getattr(function, "__name__", "function").strip("<>")
        self._functions += 1
        word = f"python.{name if name.isidentifier() else 'function'}.{self._functions}"
        kernels.register(word, dict.fromkeys(meant, function))
        return word

    # -- scopes

    def enter(self, routes: Mapping[str, Chain]) -> tuple[_C.Scope, tuple[Layer, ...]]:
        """Opens a scope in this thread; returns it and the layers that were there before."""
        with self._lock:
            entries = tuple(
                self._entry(pattern, chain, "routing.use") for pattern, chain in routes.items()
            )
            layer = Layer("use", entries)
            before = _inner.get()
            facts = self.facts()
            alone = self._table([layer])
            self._check(alone, facts)
            table = self._table((*self._outer(), *before, layer))
            scoped = []
            for name, fact in facts.items():
                usable = plans.usable(fact)
                if fact.routable and alone.resolve(name, usable).clauses:
                    scoped.append((name, plans.plan(fact, table.resolve(name, usable))))
            scope = _C.open_scope(scoped)
        _inner.set((*before, layer))
        return scope, before


def _matches(pattern: Pattern, name: str) -> bool:
    return pattern.matches(plans.operator(name))


def _check_named(entry: Entry, facts: Mapping[str, Facts]) -> None:
    """A wildcard takes what it can get; an operator that is named has a route or is a mistake."""
    pattern = Pattern(entry.pattern)
    if entry.pattern == DEFAULT or not pattern.exact_name:
        return
    named = [fact for name, fact in facts.items() if _matches(pattern, name)]
    routable = [fact for fact in named if fact.routable]
    if routable:
        offers = [[plans.offer(fact, route) for route in entry.chain] for fact in routable]
        if not any(offered.step for row in offers for offered in row):
            reasons = "; ".join(f"{offered.route}: {offered.reason}" for offered in offers[0])
            raise _error(
                entry, f"no route of this chain can run {short(entry.pattern)!r}: {reasons}"
            )
    elif any(not fact.implicit for fact in named):
        raise _error(
            entry,
            f"{short(entry.pattern)!r} cannot be routed: memory, copies and views are the device's "
            f"own, and so is what another package has registered for flagos",
        )


def _error(entry: Entry, problem: str) -> RouteError:
    return RouteError(problem, entry.location, entry.text)


ENGINE: Final = Engine()


def set(routes: str | Mapping[str, Chain | None], chain: Chain | None = None) -> None:
    """Changes routes for the whole process, at once and until they are changed again.

        torch_fl.routing.set("mm", "flaggems, boxing")
        torch_fl.routing.set({"_foreach_*": "composite", "add[int64]": "cpu"})
        torch_fl.routing.set("relu", my_function)
        torch_fl.routing.set("mm", None)          # what the configuration says, again

    Calls under way in other threads finish on the route that they began with. An operator that
    only PyTorch's own compositions run (`explain` says so) is first registered with PyTorch's
    dispatcher when a route names it: do that before other threads call it.

    Args:
        routes: a pattern as in a routes file, or a mapping of patterns to chains.
        chain: the chain for a single pattern: routes as text, a function, or several of both. A
            function is called with the operator's arguments and may return NotImplemented, see
            `Kernel`. None takes back what was set for this pattern.

    Raises:
        RouteError: a pattern or route that there is not, with the nearest word; an operator that
            cannot be routed, with the reason. Nothing has changed then.
    """
    ENGINE.set({routes: chain} if isinstance(routes, str) else routes)


def reset() -> None:
    """Takes back everything that `set` has changed."""
    ENGINE.reset()


class use(ContextDecorator):  # noqa: N801  (it is called like a function)
    """Routes for the calls of this thread within a `with` block, over all others.

        with torch_fl.routing.use({"mm": "cpu"}):
            loss.backward()                       # also in the threads that autograd uses

    Blocks can be nested, the innermost answers first. Other threads are not affected. Also a
    decorator.

    Raises:
        RouteError: on entering, as `set` does.
    """

    def __init__(self, routes: Mapping[str, Chain]) -> None:
        self._routes = routes
        self._open: list[tuple[_C.Scope, tuple[Layer, ...]]] = []

    def __enter__(self) -> Self:
        self._open.append(ENGINE.enter(self._routes))
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        scope, before = self._open.pop()
        _C.close_scope(scope)
        _inner.set(before)
