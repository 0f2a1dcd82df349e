"""Owns: the smoke set on flagos against the same set on the device that flagos stands on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .execution import GOOD
from .results import LEFT_OUT

__all__ = ["wrong"]

Records = Mapping[str, Mapping[str, Any]]


def wrong(names: Iterable[str], flagos: Records, native: Records) -> list[str]:
    """What is not as it should be, a line each: of all graphs that there are, each must have a
    result on both sides; what is good natively must be good on flagos, with no graph break more."""
    said = []
    for name in names:
        missing = [
            f"{name}: not run {where}"
            for where, records in (("on flagos", flagos), ("natively", native))
            if name not in records
        ]
        said += missing or _wrong(name, flagos[name], native[name])
    return said


def _wrong(name: str, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    if theirs["verdict"] not in (*GOOD, LEFT_OUT):
        return []  # PyTorch itself cannot
    if LEFT_OUT in (mine["verdict"], theirs["verdict"]):
        alike = mine["verdict"] == theirs["verdict"]
        return [] if alike else [f"{name}: {mine['verdict']}, natively {theirs['verdict']}"]
    if mine["verdict"] not in GOOD:
        return [f"{name}: {mine['verdict']} {mine['notes']}"]
    if mine["breaks"] > theirs["breaks"]:
        return [f"{name}: {mine['breaks']} breaks, natively {theirs['breaks']}"]
    return []
