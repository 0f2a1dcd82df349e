"""Owns: the layers of routes that the environment asks for. It is read, never written."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from torch_fl import settings
from torch_fl.routing.errors import Location, RouteError, alternatives, nearest, quoted
from torch_fl.routing.files import load
from torch_fl.routing.grammar import DEFAULT, NAMESPACE, Entry, Words, parse_chain, short
from torch_fl.routing.patterns import Operator
from torch_fl.routing.table import Layer


def layers(
    known: Iterable[str],
    *,
    words: Words,
    profiles: Mapping[str, Path] | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[Layer, ...]:
    """The layers "config", of FLAGOS_BACKEND_CONFIG, and "environment", of all FLAGOS_OP_*.

    A variable that is not set, or empty, makes no layer.

    Args:
        known: all operators of this PyTorch, CompositeImplicitAutograd ones too: `Table.check` has
            the better words for those.
        words: see `grammar.vocabulary`.
        profiles: files that FLAGOS_BACKEND_CONFIG may name. A path with a "/" is never a profile.
        environment: the variables, by default those of this process.

    Raises:
        RouteError: for the first mistake.
    """
    found = []
    if config := settings.FLAGOS_BACKEND_CONFIG.read(environment):
        found.append(Layer("config", _config(config, profiles or {}, words)))
    if chains := settings.FLAGOS_OP.read(environment):
        patterns = _patterns(known)
        entries = (_entry(name, text, patterns, words) for name, text in chains.items())
        found.append(Layer("environment", tuple(entries)))
    return tuple(found)


def _config(config: str, profiles: Mapping[str, Path], words: Words) -> tuple[Entry, ...]:
    if config in profiles:
        return load(profiles[config], words=words)
    if not os.path.lexists(config):
        expected = "a file of routes"
        if profiles:
            expected += f", or a profile: {alternatives(sorted(profiles))}"
        raise RouteError(
            f"there is no file {quoted(config)}" + (", and no such profile" if profiles else ""),
            Location(f"environment variable {settings.FLAGOS_BACKEND_CONFIG.name}", 1, 1),
            config,
            0,
            expected,
            nearest(config, profiles),
        )
    return load(config, words=words)


def _entry(name: str, text: str, patterns: Mapping[str, frozenset[str]], words: Words) -> Entry:
    variable = settings.FLAGOS_OP.prefix + name
    file = f"environment variable {variable}"
    source = f"{variable}={text}"
    at = len(settings.FLAGOS_OP.prefix)
    location = Location(file, 1, at + 1)
    meant = sorted(patterns.get(name, ()))
    if not meant:
        raise RouteError(
            f"there is no operator {quoted(name)}",
            location,
            source,
            at,
            "an operator of this PyTorch, '.' and '::' in its name written '__'",
            nearest(name, patterns),
        )
    if len(meant) > 1:
        raise RouteError(
            f"{quoted(name)} can mean {alternatives(map(short, meant))}",
            location,
            source,
            at,
            f"a line for one of them in the file of {settings.FLAGOS_BACKEND_CONFIG.name}",
        )
    chain = parse_chain(source, file, words=words, start=len(variable) + 1)
    return Entry(meant[0], None, chain, Location(file, 1, 1), source)


def _patterns(known: Iterable[str]) -> dict[str, frozenset[str]]:
    """What each name means after FLAGOS_OP_: all overloads of an operator, or one of them."""
    meanings: dict[str, set[str]] = defaultdict(set)
    meanings[DEFAULT].add(DEFAULT)
    for operator in map(Operator.of, known):
        for pattern in (operator.name, operator.full):
            for written in {pattern, pattern.removeprefix(NAMESPACE)}:
                meanings[written.replace("::", "__").replace(".", "__")].add(pattern)
    return {name: frozenset(patterns) for name, patterns in meanings.items()}
