"""Owns: recorded evidence of whole programs, ``<plugin>/<torch>-<kind>-programs.json``.

Kept are counts of the outcomes, and every program that was neither equal nor skipped with what is
said of it. Seconds and peaks are left out: they are of one run on one machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from .. import evidence_files
from ..evidence_files import EvidenceError
from ..harness.results import Kind
from .compare import Outcome
from .record import Record

__all__ = ["KEY", "record"]

KEY: Final = "programs"
_UNNAMED: Final = (Outcome.EQUAL.value, Outcome.SKIPPED.value)


def record(folder: Path, kept: Record, every: Collection[str], kind: Kind | None = None) -> Path:
    """Record outcomes in ``folder``; returns the file, in which they replace all earlier ones.

    Args:
        folder: the evidence.
        kept: the outcomes.
        every: the names of all programs that there are.
        kind: what they ran on; by default "host" for that plugin, else "hardware".

    Raises:
        EvidenceError: a program has no outcome, or not all are of one build on one machine.
    """
    entries = {name: entry for name, entry in kept.programs.items() if name in every}
    if missing := sorted(set(every) - entries.keys()):
        raise EvidenceError(
            f"all programs are recorded, and {len(missing)} have no outcome, such as "
            f"{missing[0]}: run them too, without --select"
        )
    builds = {entry["build"] for entry in entries.values()}
    if len(builds) != 1:
        raise EvidenceError("the outcomes are of several builds or machines: run with --again")
    (build,) = (kept.builds[name] for name in builds)
    kind = kind or evidence_files.usual_kind(build["plugin"])
    head = {
        "plugin": build["plugin"],
        "kind": kind,
        "torch": build["torch"],
        "native": build["native"],
    }
    path = evidence_files.location(folder, build["plugin"], build["torch"], f"{kind}-programs")
    evidence_files.earlier(path, build["plugin"], KEY)  # what is no such file is not overwritten
    return evidence_files.write(path, head, KEY, _found(build, entries))


def _found(build: Mapping[str, str], entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    counts = Counter(entry["outcome"] for entry in entries.values())
    return {
        "date": max(entry["date"] for entry in entries.values()),
        "plugin_version": build["plugin_version"],
        "python": build["python"],
        "machine": build["machine"],
        "device_name": build["device"],
        "outcomes": {each.value: counts[each.value] for each in Outcome if counts[each.value]},
        "named": {
            name: {key: entry[key] for key in ("outcome", "as_expected", "detail")}
            for name, entry in sorted(entries.items())
            if entry["outcome"] not in _UNNAMED
        },
    }
