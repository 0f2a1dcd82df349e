"""Owns: which plugins are installed, and which of them may be imported."""

from __future__ import annotations

import collections
import difflib
import re
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from torch_fl import settings
from torch_fl.plugins.declarations import HOST
from torch_fl.plugins.records import Record, describe, named, origin, sentence

GROUP = "torch_fl.plugins"
CORE = "torch-fl-core"


class Candidate(NamedTuple):
    """A plugin that may be imported. `reference` is where its entry point says that it is."""

    name: str
    distribution: str | None
    version: str | None
    reference: str
    load: Callable[[], object]

    def __str__(self) -> str:
        return f"the plugin {named(self.name, self.distribution, self.version)}"

    def is_half_imported(self) -> bool:
        """Whether the import of its module is under way, further out in this very call."""
        module = sys.modules.get(self.reference.partition(":")[0].strip())
        return getattr(getattr(module, "__spec__", None), "_initializing", False)

    def record(self) -> Record:
        """Its record as long as nothing else is known of it."""
        return Record(self.name, self.distribution, self.version, "metadata", "It is installed.")


class Discovery(NamedTuple):
    """What is installed.

    `candidates`: by name, the host's last. `records`: of what cannot or may not be imported.
    `notes`: sentences on settings that name plugins which are not installed.
    """

    candidates: tuple[Candidate, ...]
    records: tuple[Record, ...]
    notes: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of all plugins, importable or not."""
        found = [each.name for each in self.candidates] + [each.name for each in self.records]
        return tuple(dict.fromkeys(found))


def discover() -> Discovery:
    """What is installed, under FLAGOS_PLUGINS_ALLOW and FLAGOS_DISABLE_PLUGINS. Imports none of it.

    The embedded host plugin needs no permission; only FLAGOS_DISABLE_PLUGINS takes it away.
    """
    installed, records = _installed()
    embedded = _embedded()
    by_name: dict[str, list[Candidate]] = collections.defaultdict(list)
    for candidate in [*sorted(installed, key=lambda each: each.name), embedded]:
        by_name[candidate.name].append(candidate)
    candidates = []
    for name, same in by_name.items():
        if why := _forbidden(name):
            records += [replace(each.record(), stage="skipped", why=why) for each in same]
        elif embedded in same:
            records += [_taken_twice(each, same) for each in same if each is not embedded]
        elif len(same) > 1:
            records += [_taken_twice(each, same) for each in same]
        else:
            candidates += same
    if not _forbidden(HOST):
        candidates.append(embedded)
    return Discovery(tuple(candidates), tuple(records), tuple(_notes(by_name)))


def not_installed(name: str, known: Collection[str]) -> str:
    """The end of a sentence that names a plugin which there is not."""
    near = difflib.get_close_matches(name.lower(), known, n=1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    return f"but no plugin of that name is installed.{meant}"


class _Distribution(Protocol):
    """What is asked of a distribution; importlib_metadata's own type has changed its name."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def entry_points(self) -> Any: ...
    def locate_file(self, path: str) -> object: ...


def _installed() -> tuple[list[Candidate], list[Record]]:
    import importlib_metadata

    records: list[Record] = []
    found: dict[str, Any] = {}
    for distribution in importlib_metadata.distributions():
        try:
            # Parsing is most of what entry points cost, and hardly any distribution has the group.
            if GROUP in (distribution.read_text("entry_points.txt") or ""):
                # Of one that is on sys.path twice, the first is the one that Python imports.
                found.setdefault(_normalized(distribution.name), distribution)
        except Exception as error:  # one broken distribution does not hide the others
            records.append(_unreadable(distribution, error))
    candidates: list[Candidate] = []
    for distribution in found.values():
        try:
            candidates += _entries(distribution)
        except Exception as error:
            records.append(_unreadable(distribution, error))
    return candidates, records


def _entries(distribution: _Distribution) -> list[Candidate]:
    name, version = distribution.name, distribution.version
    return [
        Candidate(entry.name, name, version, entry.value, entry.load)
        for entry in distribution.entry_points.select(group=GROUP)
    ]


def _embedded() -> Candidate:
    import torch_fl

    def load() -> object:
        from torch_fl.plugins import host

        return host

    version = getattr(torch_fl, "__version__", None)  # its metadata takes longer to read
    return Candidate(HOST, CORE, version, "torch_fl.plugins.host", load)


def _forbidden(name: str) -> str | None:
    """Why a setting keeps a plugin from being imported; None if none does."""
    if name in settings.FLAGOS_DISABLE_PLUGINS.read():
        return "FLAGOS_DISABLE_PLUGINS names it, so it is not imported."
    allowed = settings.FLAGOS_PLUGINS_ALLOW.read()
    if allowed is not None and name not in allowed and name != HOST:
        return "FLAGOS_PLUGINS_ALLOW does not name it, so it is not imported."
    return None


def _notes(known: Collection[str]) -> Iterator[str]:
    for setting in (settings.FLAGOS_PLUGINS_ALLOW, settings.FLAGOS_DISABLE_PLUGINS):
        for name in setting.read() or ():
            if name not in known:
                yield f"{setting.name} names {name!r}, {not_installed(name, known)}"


def _taken_twice(candidate: Candidate, same: Collection[Candidate]) -> Record:
    if candidate.name == HOST:
        error = (
            f"The name {HOST!r} is that of {CORE}'s own plugin, so the one of "
            f"{candidate.distribution} is not used: uninstall {candidate.distribution}."
        )
    else:
        origins = " and ".join(origin(each.distribution, each.version) for each in same)
        error = (
            f"{origins} each bring a plugin {candidate.name!r}, so neither is used: uninstall all "
            f"but one of them."
        )
    why = "Another distribution has a plugin of the same name."
    return replace(candidate.record(), why=why, error=error)


def _unreadable(distribution: _Distribution, error: Exception) -> Record:
    version: str | None = None
    try:
        name, version = distribution.name, distribution.version
    except Exception:  # so broken that it has no name
        name = str(distribution.locate_file(""))
    return Record(
        name,
        name,
        version,
        "metadata",
        why="What its distribution says of itself cannot be read.",
        error=f"Reading its entry points raised {sentence(describe(error))} Reinstall {name}.",
    )


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
