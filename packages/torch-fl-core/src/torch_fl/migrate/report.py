"""Owns: the report of a migration: what was rewritten, how often and where, and what could not be.

Call sites are those of the user's code: the nearest frame that is neither PyTorch's nor ours.
"""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass, field

__all__ = ["Limit", "Report", "Rewrite", "is_ours"]

SITES = 3  # kept for each name
LOOKS = 64  # calls of one name whose place is looked for: a loop must not pay for it for ever


@dataclass(frozen=True)
class Rewrite:
    """One name that was rewritten: "torch.zeros(device='cuda')", "torch.cuda.synchronize"."""

    name: str
    count: int
    sites: tuple[str, ...]
    """The first places in the user's code, as "file:line"."""


@dataclass(frozen=True)
class Limit:
    """Something in the script that is not rewritten."""

    name: str
    advice: str
    count: int
    sites: tuple[str, ...]


@dataclass
class _Entry:
    advice: str = ""
    count: int = 0
    sites: list[str] = field(default_factory=list)


def is_ours(module: str) -> bool:
    """Whether a module of this name is PyTorch's or torch-fl's: not the user's code."""
    return module == "torch" or module.startswith(("torch.", "torch_fl"))


def _is_passed_through(module: str) -> bool:
    # PyTorch marks what is deprecated with a wrapper of typing_extensions.
    return is_ours(module) or module == "typing_extensions"


def call_site() -> str:
    """The nearest place in the user's code, "file:line"."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_passed_through(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


class Report:
    """What one migration rewrote. Readable at any time, in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rewrites: dict[str, _Entry] = {}
        self._limits: dict[str, _Entry] = {}

    @property
    def rewrites(self) -> tuple[Rewrite, ...]:
        """One for each name, the most frequent first."""
        with self._lock:
            found = [
                Rewrite(name, entry.count, tuple(entry.sites))
                for name, entry in self._rewrites.items()
            ]
        return tuple(sorted(found, key=lambda row: (-row.count, row.name)))

    @property
    def limits(self) -> tuple[Limit, ...]:
        """What was met and is not rewritten, by name."""
        with self._lock:
            return tuple(
                Limit(name, entry.advice, entry.count, tuple(entry.sites))
                for name, entry in sorted(self._limits.items())
            )

    def add(self, name: str) -> None:
        """Counts one rewriting of `name` here."""
        self._count(self._rewrites, name, None)

    def add_limit(self, name: str, advice: str, site: str | None = None) -> None:
        """Counts one meeting with something that is not rewritten, here or at `site`."""
        self._count(self._limits, name, site).advice = advice

    def _count(self, entries: dict[str, _Entry], name: str, site: str | None) -> _Entry:
        with self._lock:
            entry = entries.setdefault(name, _Entry())
            entry.count += 1
            look = len(entry.sites) < SITES and entry.count <= LOOKS
            if look and (place := site or call_site()) not in entry.sites:
                entry.sites.append(place)
            return entry

    def table(self) -> str:
        """Both lists as aligned text."""
        lines = [("rewritten", "count", "first call sites")]
        lines += [(row.name, str(row.count), _short(row.sites)) for row in self.rewrites]
        text = _aligned(lines) if len(lines) > 1 else ["nothing was rewritten"]
        limits = [("not rewritten", "count", "where")]
        limits += [(row.name, str(row.count), _short(row.sites)) for row in self.limits]
        if len(limits) > 1:
            text += ["", *_aligned(limits), ""]
            text += [f"{row.name}: {row.advice}" for row in self.limits]
        return "\n".join(text)

    def __str__(self) -> str:
        return self.table()


def _short(sites: tuple[str, ...]) -> str:
    here = os.getcwd() + os.sep
    return ", ".join(site.removeprefix(here) for site in sites)


def _aligned(lines: list[tuple[str, str, str]]) -> list[str]:
    first, second = (max(len(line[column]) for line in lines) for column in (0, 1))
    return [f"{a:<{first}}  {b:>{second}}  {c}".rstrip() for a, b, c in lines]
