"""Owns: the list of known failures, ``exclusions/op_db.yaml``, which may only shrink.

An excluded operator that passes is an error: its entry must go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
import yaml

from .results import UnitResult

MAXIMUM: Final = 15
DEFAULT_FILE: Final = Path(__file__).parent / "exclusions" / "op_db.yaml"


class ExclusionError(ValueError):
    """The exclusion list itself is wrong."""


@dataclass(frozen=True)
class Exclusion:
    """One operator, the passes in which it is known to fail, and why.

    `since`: the oldest torch, (major, minor), whose op_db has the operator.
    """

    op: str
    passes: tuple[str, ...]
    reason: str
    since: tuple[int, int] = (0, 0)


def load(path: Path, entries: Collection[str], passes: Collection[str]) -> list[Exclusion]:
    """Read and check a list.

    Args:
        path: the YAML file.
        entries: the operators that exist.
        passes: the passes that exist.

    Raises:
        ExclusionError: too many entries, an unknown operator, pass or key, no reason, or the
            same operator twice.
    """
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(data, dict) or set(data) != {"exclusions"}:
        raise ExclusionError(f"{path} must hold one key, 'exclusions'")
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    exclusions = [
        exclusion
        for exclusion in map(_parse, data["exclusions"] or [])
        if exclusion.since <= version
    ]
    if len(exclusions) > MAXIMUM:
        raise ExclusionError(f"{path} has {len(exclusions)} entries, at most {MAXIMUM} are allowed")
    seen: set[str] = set()
    for exclusion in exclusions:
        if exclusion.op not in entries:
            raise ExclusionError(f"{exclusion.op} is no entry of op_db")
        if exclusion.op in seen:
            raise ExclusionError(f"{exclusion.op} is excluded twice")
        seen.add(exclusion.op)
        for name in exclusion.passes:
            if name not in passes:
                raise ExclusionError(f"{exclusion.op}: there is no pass {name!r}")
    return exclusions


def _parse(item: Any) -> Exclusion:
    if not isinstance(item, dict) or set(item) - {"since"} != {"op", "passes", "reason"}:
        raise ExclusionError(f"an exclusion has the keys op, passes and reason: {item!r}")
    passes, reason = item["passes"], item["reason"]
    if not isinstance(passes, list) or not passes:
        raise ExclusionError(f"{item['op']}: passes must be a list of pass names")
    if not isinstance(reason, str) or not reason.strip():
        raise ExclusionError(f"{item['op']}: a reason is required")
    major, _, minor = str(item.get("since", "0.0")).partition(".")
    if not (major.isdigit() and minor.isdigit()):
        raise ExclusionError(f"{item['op']}: since must be a torch version such as '2.13'")
    since = (int(major), int(minor))
    return Exclusion(str(item["op"]), tuple(map(str, passes)), reason.strip(), since)


def excluded_keys(exclusions: list[Exclusion]) -> set[tuple[str, str]]:
    """The (operator, pass) pairs that may fail."""
    return {(exclusion.op, name) for exclusion in exclusions for name in exclusion.passes}


def passing_exclusions(
    exclusions: list[Exclusion], units: Mapping[tuple[str, str], UnitResult]
) -> list[tuple[str, str]]:
    """The excluded (operator, pass) pairs that passed, and so must leave the list.

    A unit whose samples were limited proves nothing: the failing sample may lie beyond.
    """
    return [
        key
        for key in sorted(excluded_keys(exclusions))
        if key in units and units[key].ok and not units[key].truncated
    ]
