"""Owns: recorded evidence of a backend against the device that it stands on.

One file for each plugin, torch, kind and native device,
``<plugin>/<torch>-<kind>-against-<native>.json``, with the latest comparison of each suite: counts,
and the names of the cases that failed or were not equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from . import evidence_files
from .evidence_files import EvidenceError
from .harness.report import expected_units
from .harness.results import Header
from .side_by_side import Runs, Score

KEY: Final = "against"

NAMED: Final = 100
"""So many cases of a suite are named at most, of each sort; all of them are counted."""

_FLAGOS: Final = "flagos"


def record(folder: Path, runs: Runs, scores: dict[str, Score]) -> Path:
    """Record a comparison in ``folder``; returns the file.

    Args:
        folder: the evidence.
        runs: what was compared.
        scores: what came of it.

    Raises:
        EvidenceError: something is missing, or it was not flagos against another device.
    """
    native = _native(runs.header, runs.native_headers)
    _check_whole(runs, scores)
    header = runs.header
    ending = f"{header.kind}-against-{native}"
    path = evidence_files.location(folder, header.plugin, header.torch, ending)
    suites = evidence_files.earlier(path, header.plugin, KEY)
    count = len(runs.natives)
    suites.update({name: _block(score, header, count) for name, score in scores.items()})
    head = {
        "plugin": header.plugin,
        "kind": header.kind,
        "torch": header.torch,
        "native": native,
    }
    return evidence_files.write(path, head, KEY, suites)


def _native(header: Header, natives: Sequence[Header]) -> str:
    """The type of the native device."""
    device, *others = (found.device.partition(":")[0] for found in (header, *natives))
    if device != _FLAGOS or _FLAGOS in others or len(set(others)) != 1:
        raise EvidenceError(
            "recorded is a run on flagos (--merge) against runs on one other device (--against), "
            f"not {device} against {', '.join(others)}"
        )
    return others[0]


def _check_whole(runs: Runs, scores: dict[str, Score]) -> None:
    configurations = {name for found in runs.native_headers for name in found.configurations}
    wanted = expected_units(runs.header)
    shared = {key for key in wanted if key[0] in configurations and key[1] in scores}
    if wanted - runs.units.keys() or any(shared - units.keys() for _, units in runs.natives):
        raise EvidenceError(
            "only whole suites are recorded, which every run must have: leave out what narrows "
            "them, and let those that were stopped go on with --resume"
        )
    if empty := [name for name, score in scores.items() if not score.native]:
        raise EvidenceError(f"nothing passes natively in {', '.join(empty)}: nothing was compared")


def _block(score: Score, header: Header, native_runs: int) -> dict[str, Any]:
    return {
        **evidence_files.facts(header),
        "device_name": header.device_name,
        "native_runs": native_runs,
        "native": score.native,
        "passed": score.passed,
        "equal": score.equal,
        "varying": score.varying,
        "failed": len(score.failed),
        "unequal": len(score.unequal),
        "failed_cases": score.failed[:NAMED],
        "unequal_cases": score.unequal[:NAMED],
    }
