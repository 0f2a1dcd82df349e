"""Owns: which plugin is used, of those whose hardware is in the machine.

An exact match of the hardware decides first, then what a plugin declares that it supersedes, then
its priority. Where that does not decide it is an error: nobody guesses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch_fl.plugins.declarations import HOST
from torch_fl.plugins.loaded import LoadedPlugin


class Choice(NamedTuple):
    """`plugin` and `why`, or an `error`; and why each of the others is not used, by name."""

    plugin: LoadedPlugin | None
    why: str
    error: str | None
    others: dict[str, str]


class _Rule(NamedTuple):
    """`keeps` says whether a plugin stays among those that are left; `won` and `lost` are sentences
    for those that do and do not, given the names of those that do."""

    keeps: Callable[[LoadedPlugin, Sequence[LoadedPlugin]], bool]
    won: str
    lost: str


_RULES = (
    _Rule(
        lambda plugin, left: plugin.name != HOST,
        won="Its hardware is here, and no other plugin's is.",
        lost="It is used only where no other plugin fits.",
    ),
    _Rule(
        lambda plugin, left: plugin.detection is not None and plugin.detection.exact,
        won="It matches the hardware exactly, and no other plugin does.",
        lost="It fits, but not exactly, as {winners} does.",
    ),
    _Rule(
        lambda plugin, left: not any(plugin.name in other.identity.supersedes for other in left),
        won="It supersedes {losers}.",
        lost="It is superseded where {winners} fits.",
    ),
    _Rule(
        lambda plugin, left: (
            plugin.identity.priority == max(other.identity.priority for other in left)
        ),
        won="Its priority is higher than that of {losers}.",
        lost="Its priority is lower than that of {winners}.",
    ),
)


def choose(found: Sequence[LoadedPlugin]) -> Choice:
    """The plugin to use, of at least one."""
    others: dict[str, str] = {}
    left, why = list(found), "No other plugin fits this machine."
    for rule in _RULES:
        kept = [plugin for plugin in left if rule.keeps(plugin, left)]
        lost = [plugin for plugin in left if plugin not in kept]
        if kept and lost:  # a rule that leaves nobody, as of two that supersede each other, is none
            names = {"winners": _names(kept), "losers": _names(lost)}
            others |= {plugin.name: rule.lost.format(**names) for plugin in lost}
            left, why = kept, rule.won.format(**names)
    if len(left) == 1:
        return Choice(left[0], why, None, others)
    tied = "It fits this machine as well as others do, so none is chosen."
    return Choice(None, "", _tie(left), others | {plugin.name: tied for plugin in left})


def _tie(plugins: Sequence[LoadedPlugin]) -> str:
    ways = " or ".join(f"FLAGOS_PLUGIN={plugin.name}" for plugin in plugins)
    return (
        f"These plugins fit this machine equally well: {' and '.join(map(str, plugins))}. Set "
        f"{ways} to choose one."
    )


def _names(plugins: Sequence[LoadedPlugin]) -> str:
    return " and ".join(repr(plugin.name) for plugin in plugins)
