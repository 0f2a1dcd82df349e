"""Owns: what is known of each plugin: how far it came, what went wrong, why it is used or not."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from torch_fl.plugins.declarations import Detection

Stage = Literal[
    "metadata",  # its distribution could not be read, or its name is taken twice
    "skipped",  # not imported: a setting says so
    "import",
    "hooks",  # it lacks a hook that it must have, or is nothing that can have hooks
    "identity",
    "api",  # it was written for another version of the plugin API
    "detect",  # its hardware was not found, or looking for it failed
    "candidate",  # it fits the machine, but another one is used
    "runtime",  # it was chosen and could not be started
    "chosen",
]

_LONGEST_TEXT = 1000


@dataclass(frozen=True)
class Record:
    """One plugin, and where its way ended.

    `stage` with an `error` is where it failed; without one it is as far as it went. `error` says
    what is wrong and what to do; `why` is one sentence on why the plugin is used or not; `ms` is
    the time that it took. `warnings` did no harm yet. `traceback` belongs to `error`.
    """

    name: str
    distribution: str | None
    version: str | None
    stage: Stage
    why: str
    error: str | None = None
    ms: float = 0.0
    title: str = ""
    detection: Detection | None = None
    warnings: tuple[str, ...] = ()
    traceback: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def origin(distribution: str | None, version: str | None) -> str:
    """A distribution and its version, as people write them: "torch-fl-core 0.1.0"."""
    return " ".join(part for part in (distribution, version) if part)


def named(name: str, distribution: str | None, version: str | None) -> str:
    """A plugin and where it comes from: "'host' (torch-fl-core 0.1.0)"."""
    come_from = origin(distribution, version)
    return f"{name!r} ({come_from})" if come_from else repr(name)


def describe(error: BaseException) -> str:
    """An exception in one line. Holds for any, be its text broken or long."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # its text cannot be made
        text = ""
    if len(text) > _LONGEST_TEXT:
        text = f"{text[:_LONGEST_TEXT]}..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def sentence(text: str) -> str:
    """`text` with a full stop, if it has no end of its own."""
    text = text.strip()
    return text if text.endswith((".", "!", "?")) or not text else f"{text}."
