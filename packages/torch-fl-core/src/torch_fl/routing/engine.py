"""Owns: the routes in force: layers put together, plans made of them, and given to the operators.

Routes can change at any time and from any thread, with calls under way. Nothing here runs in a
call: what an operator does is decided when a route changes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ContextDecorator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from torch_fl import _C
from torch_fl.plugins import selection
from torch_fl.plugins.spec import AbiRuntime, Routes
from torch_fl.routing import environment, files, kernels, plans
from torch_fl.routing.checks import Operators
from torch_fl.routing.errors import RouteError
from torch_fl.routing.grammar import DEFAULT, Entry, Words, parse_entry, short
from torch_fl.routing.kernels import Kernel
from torch_fl.routing.patterns import Operator, Pattern
from torch_fl.routing.plans import Facts, Plan
from torch_fl.routing.table import Layer, Table

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

Function = Callable[..., object]
Chain = str | Function | Iterable[str | Function]
"""A chain as text ("flaggems, cpu"), a function, or routes and functions in turn."""

_log = logging.getLogger("torch_fl.routing")


class _Inner(threading.local):
    """The layers of the blocks of `use` that a thread is in, the outermost first."""

    def __init__(self) -> None:
        self.layers: tuple[Layer, ...] = ()


_inner = _Inner()


class Engine:
    """The routes of the process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._below: tuple[Layer, ...] = ()  # the plugin's, the configuration's, the environment's
        self._set: dict[tuple[str, frozenset[str] | None], Entry] = {}
        self._facts: dict[str, Facts] = {}
        self._applied: dict[str, Plan] = {}
        self._functions: dict[Function, str] = {}
        self._operators = Operators((), ())
        self._split: dict[str, Operator] = {}

    # -- what there is

    def words(self) -> Words:
        """The words for routes, aliases and registered providers among them."""
        chosen = selection.current()
        if chosen.plugin is None:
            return kernels.words({})
        native = isinstance(chosen.runtime, AbiRuntime)
        return kernels.words({chosen.plugin.name: "native" if native else "boxing"})

    def facts(self) -> dict[str, Facts]:
        """All operators of this process."""
        with self._lock:
            if not self._facts:
                self.refresh()
            return self._facts

    def refresh(self) -> None:
        """Reads the operators anew: libraries register theirs when they are imported."""
        with self._lock:
            self._facts = {row[0]: Facts(*row) for row in _C.operators()}
            implicit = (name for name, fact in self._facts.items() if fact.implicit)
            self._operators = Operators(self._facts, implicit)
            self._split = {name: Operator.of(name) for name in self._facts}

    def table(self) -> Table:
        """The layers that answer in this thread, the earliest first."""
        return self._table((*self._outer(), *_inner.layers))

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
            self.refresh()
            below: list[Layer] = []
            if routes.defaults is not None:
                below.append(Layer("plugin", files.load(routes.defaults, words=self.words())))
            profiles = routes.profiles
            below += environment.layers(self._facts, words=self.words(), profiles=profiles)
            for layer in below:
                self._check(layer)
            self._change(tuple(below), self._set, self._facts)

    def set(self, routes: Mapping[str, Chain | None]) -> None:
        """See `torch_fl.routing.set`."""
        with self._lock:
            entries = self._entries(
                {name: "cpu" if chain is None else chain for name, chain in routes.items()},
                "routing.set",
            )
            changed = dict(self._set)
            added = []
            for entry, chain in zip(entries, routes.values(), strict=True):
                changed = _without(changed, entry, everything=chain is None)
                if chain is not None:
                    changed[entry.pattern, entry.dtypes] = entry
                    added.append(entry)
            self._check(Layer("set", tuple(added)))
            self._change(self._below, changed, self._matching(entries))

    def reapply(self) -> None:
        """See `torch_fl.routing.refresh`."""
        with self._lock:
            self.refresh()
            self._change(self._below, self._set, self._facts)

    def register(self, provider: str, given: Mapping[str, Function | Kernel]) -> None:
        """See `torch_fl.routing.register`."""
        with self._lock:
            kernels.register(provider, given)
            layers = self.table().layers
            if any(provider in entry.chain for layer in layers for entry in layer.entries):
                names = [str(Operator.of(name)) for name in given]
                if not self.facts().keys() >= {*names}:
                    self.refresh()
                self._change(self._below, self._set, names)

    def reset(self) -> None:
        """See `torch_fl.routing.reset`."""
        with self._lock:
            self._change(self._below, {}, self._matching(self._set.values()))

    def _change(
        self,
        below: tuple[Layer, ...],
        changed: dict[tuple[str, frozenset[str] | None], Entry],
        affected: Iterable[str],
    ) -> None:
        table = self._table((*below, Layer("set", tuple(changed.values()))))
        wanted = {name: self._plan(name, table) for name in affected}
        before = {name: self._applied.get(name) for name in wanted}
        try:
            self._apply(wanted)
        except Exception:
            self._apply(before)
            raise
        self._below, self._set = below, changed

    def _apply(self, wanted: Mapping[str, Plan | None]) -> None:
        for name, plan in wanted.items():
            if self._applied.get(name) == plan:
                continue
            _C.set_plan(name, plan)
            if plan is None:
                del self._applied[name]
            else:
                self._applied[name] = plan

    def _plan(self, name: str, table: Table) -> Plan | None:
        fact = self._facts[name]
        if not fact.routable:
            return None
        return plans.plan(fact, table.resolve(name, plans.usable(fact)))

    def _matching(self, entries: Iterable[Entry]) -> frozenset[str]:
        """The operators that entries speak about."""
        patterns = [Pattern(entry.pattern) for entry in entries]
        if any(pattern.text == DEFAULT for pattern in patterns):
            return frozenset(self.facts())
        return frozenset(
            name
            for name, operator in self._split.items()
            if any(pattern.matches(operator) for pattern in patterns)
        )

    def _check(self, layer: Layer) -> None:
        """Refuses what can have no effect: unknown operators, and named ones without a route."""
        for entry in layer.entries:
            error = self._operators.problem(entry) or self._without_route(entry)
            if error is None:
                continue
            if layer.name != "plugin":
                raise error
            # A plugin's file is for several torch versions, which do not have the same operators.
            _log.info("Without effect in this torch: %s", error)

    def _without_route(self, entry: Entry) -> RouteError | None:
        """A wildcard takes what it can get; a named operator has a route or is a mistake."""
        pattern = Pattern(entry.pattern)
        if entry.pattern == DEFAULT or not pattern.exact_name:
            return None
        named = [self._facts[name] for name in self._matching([entry])]
        routable = [fact for fact in named if fact.routable]
        what = f"{short(entry.pattern)!r}"
        if routable:
            offers = [[plans.offer(fact, route) for route in entry.chain] for fact in routable]
            if any(offered.step for row in offers for offered in row):
                return None
            reasons = "; ".join(f"{offered.route}: {offered.reason}" for offered in offers[0])
            return _error(entry, f"no route of this chain can run {what}: {reasons}")
        if all(fact.implicit for fact in named):
            return None
        return _error(
            entry,
            f"{what} cannot be routed: memory, copies and views are the device's own, and so is "
            f"what another package has registered for flagos",
        )

    def _entries(self, routes: Mapping[str, Chain], source: str) -> tuple[Entry, ...]:
        """The entries of a call, which says of no pattern two things."""
        found: dict[tuple[str, frozenset[str] | None], str] = {}
        entries = []
        for pattern, chain in routes.items():
            entry = self._entry(pattern, chain, source)
            other = found.setdefault((entry.pattern, entry.dtypes), pattern)
            if other != pattern:
                raise _error(entry, f"{pattern!r} and {other!r} are the same and routed twice")
            entries.append(entry)
        return tuple(entries)

    def _entry(self, pattern: str, chain: Chain, source: str) -> Entry:
        if not isinstance(pattern, str):
            raise TypeError(f"Routes are set by an operator's name, but got {pattern!r}.")
        if isinstance(chain, str) or callable(chain):
            chain = [chain]
        elif not isinstance(chain, Iterable):
            raise _no_route(pattern, chain)
        routes = list(chain)
        heading = parse_entry(pattern, "cpu", source, words=self.words())
        self._know(heading)
        if problem := self._operators.problem(heading, later=False):
            raise problem
        for index, route in enumerate(routes):
            if not isinstance(route, str):
                routes[index] = self._name(heading, route)
        return parse_entry(pattern, ", ".join(map(str, routes)), source, words=self.words())

    def _know(self, entry: Entry) -> None:
        """Reads the operators anew where an entry may speak about some that are not known yet."""
        self.facts()
        pattern = Pattern(entry.pattern)
        if not pattern.exact_name or not self._matching([entry]):
            self.refresh()

    def _name(self, entry: Entry, function: Function) -> str:
        """The word for a function that was given as a route.

        Without an overload it is for those that do not take `out=`, which other arguments need.
        """
        if not callable(function):
            raise _no_route(entry.pattern, function)
        pattern = Pattern(entry.pattern)
        meant = [
            name
            for name in self._matching([entry])
            if pattern.overload is not None or not self._split[name].overload.endswith("out")
        ]
        word = self._functions.get(function)
        if word is None:
            name = getattr(function, "__name__", "function").strip("<>")
            plain = name if name.isidentifier() else "function"
            word = self._functions[function] = f"python.{plain}.{len(self._functions) + 1}"
        kernels.register(word, dict.fromkeys(meant, function))
        return word

    # -- scopes

    def enter(self, routes: Mapping[str, Chain]) -> tuple[_C.Scope, Layer]:
        """Opens a scope in this thread."""
        with self._lock:
            entries = self._entries(routes, "routing.use")
            layer = Layer("use", entries)
            self._check(layer)
            table = self._table((*self._outer(), *_inner.layers, layer))
            names = [name for name in self._matching(entries) if self._facts[name].routable]
            scope = _C.open_scope([(name, self._plan(name, table)) for name in names])
        _inner.layers = (*_inner.layers, layer)
        return scope, layer

    @staticmethod
    def leave(scope: _C.Scope, layer: Layer) -> None:
        """Closes it, whichever was opened after it."""
        _C.close_scope(scope)
        _inner.layers = tuple(other for other in _inner.layers if other is not layer)


_Set = dict[tuple[str, frozenset[str] | None], Entry]


def _without(routes: _Set, entry: Entry, *, everything: bool) -> _Set:
    """What was set, less what `entry` is about. `everything`: of a pattern all dtypes' lines."""
    kept: _Set = {}
    for (pattern, dtypes), other in routes.items():
        if pattern != entry.pattern:
            kept[pattern, dtypes] = other
        elif entry.dtypes is None:
            if dtypes is not None and not everything:
                kept[pattern, dtypes] = other
        elif dtypes is None:
            kept[pattern, dtypes] = other
        elif rest := dtypes - entry.dtypes:
            kept[pattern, rest] = replace(other, dtypes=rest)
    return kept


def _no_route(pattern: str, given: object) -> TypeError:
    hint = " A Kernel is registered first: routing.register." if isinstance(given, Kernel) else ""
    return TypeError(f"The route of {pattern!r} is a word or a function, but got {given!r}.{hint}")


def _error(entry: Entry, problem: str) -> RouteError:
    return RouteError(problem, entry.location, entry.text)


ENGINE: Final = Engine()


def set(routes: str | Mapping[str, Chain | None], chain: Chain | None = None) -> None:
    """Changes routes for the whole process, at once and until they are changed again.

        torch_fl.routing.set("mm", "flaggems, boxing")
        torch_fl.routing.set({"_foreach_*": "composite", "add[int64]": "cpu"})
        torch_fl.routing.set("relu", my_function)
        torch_fl.routing.set("mm", None)          # what the configuration says, again

    What was set for some dtypes of a pattern stays when the pattern is set for all, and answers
    for these; None takes it back too. Calls under way in other threads finish on the route that
    they began with. A function is kept as long as the process lives, so define it once. An operator
    that only PyTorch's own compositions run (`explain` says so) is first registered with PyTorch's
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
    if not isinstance(routes, str | Mapping):
        raise TypeError(f"set() takes an operator's name or a mapping, but got {routes!r}.")
    if not isinstance(routes, str) and chain is not None:
        raise TypeError(f"set() of a mapping takes no chain beside it, but got {chain!r}.")
    ENGINE.set({routes: chain} if isinstance(routes, str) else routes)


def register(provider: str, kernels: Mapping[str, Function | Kernel]) -> None:
    """Makes kernels known as the route `provider`; more can be added later.

    Where the route is in force already, they run from now on (within open blocks of `use`: from
    the next block on). Files and variables are read when torch_fl is imported, so they cannot name
    what is registered later.

    Args:
        provider: the word for them in chains, such as "mine".
        kernels: by operator, such as "add.Tensor"; without an overload the unnamed one ("mm").

    Raises:
        ValueError: the word cannot be a route, there is no such operator, or a kernel is for the
            target of a backend that stands on no other device.
        TypeError: a kernel that cannot be called.
    """
    ENGINE.register(provider, kernels)


def refresh() -> None:
    """Applies all routes anew, also to the operators of libraries imported since.

    A routes file may name operators of a library (`torchvision::nms = cpu`), which exist only when
    it is imported: after the file was read.
    """
    ENGINE.reapply()


def reset() -> None:
    """Takes back everything that `set` has changed."""
    ENGINE.reset()


class use(ContextDecorator):  # noqa: N801  (it is called like a function)
    """Routes for the calls of this thread within a `with` block, over all others.

        with torch_fl.routing.use({"mm": "cpu"}):
            loss.backward()                       # also in the threads that autograd uses

    Blocks can be nested, the innermost answers first. Other threads are not affected. Also a
    decorator. A block belongs to its thread: do not leave it open across an `await` or a `yield`,
    where other code of the thread would run on its routes.

    Raises:
        RouteError: on entering, as `set` does.
    """

    def __init__(self, routes: Mapping[str, Chain]) -> None:
        if not isinstance(routes, Mapping):
            raise TypeError(f"use() takes a mapping of operators to routes, but got {routes!r}.")
        self._routes = routes
        self._threads = threading.local()

    def __enter__(self) -> Self:
        opened = ENGINE.enter(self._routes)
        self._threads.open = [*getattr(self._threads, "open", ()), opened]
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not getattr(self._threads, "open", None):
            raise RuntimeError("This block of routes was not entered in this thread.")
        *self._threads.open, (scope, layer) = self._threads.open
        ENGINE.leave(scope, layer)
