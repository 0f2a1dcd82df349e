"""Owns: recorded evidence: what is kept of runs, small enough for a repository.

One file for each plugin, torch and kind, ``<plugin>/<torch>-<kind>.json``. It holds the latest run
of each suite in each configuration; recording a run replaces those that it has and keeps the
others. Of the plain configuration there are counts for each entry, of the others totals and the
entries that failed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import evidence_files
from .evidence_files import EvidenceError
from .harness.configurations import PLAIN
from .harness.exclusions import Exclusion, excluded
from .harness.results import Header, UnitResult
from .running import Outcome

__all__ = ["KEY", "EvidenceError", "record", "summary"]

KEY = "runs"


def record(folder: Path, outcome: Outcome) -> Path:
    """Record a run in ``folder``; returns the file. Raises EvidenceError.

    A part of a run is no evidence: every entry of its suites must have been run.
    """
    header = outcome.header
    if not outcome.report.whole or outcome.report.missing_units:
        raise EvidenceError("only whole suites are recorded: leave out what narrows the run")
    path = evidence_files.location(folder, header.plugin, header.torch, header.kind)
    runs = evidence_files.earlier(path, header.plugin, KEY)
    for configuration, suites in summary(
        header, outcome.units.values(), outcome.exclusions
    ).items():
        runs[configuration] = {**runs.get(configuration, {}), **suites}
    head = {"plugin": header.plugin, "kind": header.kind, "torch": header.torch}
    return evidence_files.write(path, head, KEY, runs)


def summary(
    header: Header, units: Iterable[UnitResult], exclusions: list[Exclusion]
) -> dict[str, dict[str, Any]]:
    """For each configuration and suite what evidence keeps of its units."""
    found: dict[str, dict[str, Any]] = {}
    for unit in units:
        suites = found.setdefault(unit.configuration, {})
        block = suites.setdefault(unit.suite, {"passes": {}, "entries": {}})
        may_fail = excluded(exclusions, unit.key) is not None
        for part, name in (("passes", unit.pass_name), ("entries", unit.entry)):
            counts = block[part].setdefault(name, [0, 0, 0])
            counts[0] += unit.passed
            counts[2 if may_fail else 1] += unit.failed
    for configuration, suites in found.items():
        for suite, block in suites.items():
            suites[suite] = _closed(block, header, plain=configuration == PLAIN)
    return found


def _closed(block: dict[str, Any], header: Header, *, plain: bool) -> dict[str, Any]:
    """A block with its head; counts become text, so that each stands in one line of the file."""
    entries = block["entries"]
    shown = {
        name: " ".join(map(str, counts))
        for name, counts in entries.items()
        if plain or counts[1] or counts[2]
    }
    return {
        **evidence_files.facts(header),
        "device": header.device,
        "compared": sum(any(counts) for counts in entries.values()),
        "empty": sum(not any(counts) for counts in entries.values()),
        "passes": {name: " ".join(map(str, counts)) for name, counts in block["passes"].items()},
        "entries": shown,
    }
