"""Owns: recorded evidence: what is kept of runs, small enough for a repository.

One file for each plugin, torch and kind, ``<plugin>/<torch>-<kind>.json``. It holds the latest run
of each suite in each configuration; recording a run replaces those that it has and keeps the
others. Of the plain configuration there are counts for each entry, of the others totals and the
entries that failed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from .harness.configurations import PLAIN
from .harness.exclusions import Exclusion, excluded
from .harness.results import Header, UnitResult
from .running import Outcome

FORMAT: Final = 1


class EvidenceError(ValueError):
    """A run that is no evidence, or a file that is none."""


def record(folder: Path, outcome: Outcome) -> Path:
    """Record a run in ``folder``; returns the file. Raises EvidenceError.

    A part of a run is no evidence: every entry of its suites must have been run.
    """
    header = outcome.header
    if not outcome.report.whole or outcome.report.missing_units:
        raise EvidenceError("only whole suites are recorded: leave out what narrows the run")
    torch = header.torch.partition("+")[0]
    path = folder / header.plugin / f"{torch}-{header.kind}.json"
    runs = dict(_read(path, header)["runs"]) if path.exists() else {}
    for configuration, suites in summary(
        header, outcome.units.values(), outcome.exclusions
    ).items():
        runs[configuration] = {**runs.get(configuration, {}), **suites}
    data = {
        "format": FORMAT,
        "plugin": header.plugin,
        "kind": header.kind,
        "torch": header.torch,
        "runs": runs,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return path


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
        "date": header.date,
        "tier": header.tier,
        "plugin_version": header.plugin_version,
        "python": header.python,
        "machine": header.machine,
        "device": header.device,
        "compared": sum(any(counts) for counts in entries.values()),
        "empty": sum(not any(counts) for counts in entries.values()),
        "passes": {name: " ".join(map(str, counts)) for name, counts in block["passes"].items()},
        "entries": shown,
    }


def _read(path: Path, header: Header) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        belongs = (data["format"], data["plugin"]) == (FORMAT, header.plugin)
    except (ValueError, KeyError, TypeError) as error:
        raise EvidenceError(f"{path} is no evidence: {error}") from error
    if not belongs:
        raise EvidenceError(f"{path} is of another format or plugin")
    return dict(data)
