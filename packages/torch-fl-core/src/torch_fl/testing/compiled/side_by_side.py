"""Owns: the smoke set on flagos against the same set on the device that flagos stands on: what
comes of each graph, and the operators that it is compiled from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import known
from .execution import GOOD, RAISES
from .operators import other
from .results import LEFT_OUT

__all__ = ["Operators", "compared_operators", "wrong"]

Records = Mapping[str, Mapping[str, Any]]


def wrong(names: Iterable[str], flagos: Records, native: Records) -> list[str]:
    """What is not as it should be, a line each: of all graphs that there are, each must have a
    result on both sides; what is good natively must be good on flagos, with no graph break more. So
    must be what has no meaning on the CPU, where that is the native device."""
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
    if theirs["verdict"] == LEFT_OUT and theirs.get("device") == "cpu":
        fine = mine["verdict"] in (*GOOD, LEFT_OUT)  # for accelerators: nothing to be measured by
        return [] if fine else [f"{name}: {mine['verdict']} {mine['notes']}"]
    if LEFT_OUT in (mine["verdict"], theirs["verdict"]):
        alike = mine["verdict"] == theirs["verdict"]
        return [] if alike else [f"{name}: {mine['verdict']}, natively {theirs['verdict']}"]
    if mine["verdict"] not in GOOD:
        return [f"{name}: {mine['verdict']} {mine['notes']}"]
    if mine["breaks"] > theirs["breaks"]:
        return [f"{name}: {mine['breaks']} breaks, natively {theirs['breaks']}"]
    return []


@dataclass
class Operators:
    """What came of comparing operators. `wrong`: a line for each graph that should have the native
    ones and has not, or is known to have others and has them no more. `known`: graphs that have
    others for a reason that is known. `unknown`: graphs that a file says no operators of."""

    wrong: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def compared_operators(names: Iterable[str], flagos: Records, native: Records) -> Operators:
    """The operators in Inductor's graphs, of all that has come to be compiled on both sides and is
    good natively: what is compiled from others may be right, and slow."""
    found = Operators()
    for name in names:
        mine, theirs = flagos.get(name), native.get(name)
        if mine is None or theirs is None or theirs["verdict"] not in GOOD:
            continue
        if mine["verdict"] in (RAISES, LEFT_OUT):
            continue  # `wrong` says so
        if mine.get("operators") is None or theirs.get("operators") is None:
            found.unknown.append(name)
            continue
        differing = other(mine["operators"], theirs["operators"])
        device = str(theirs["device"]).partition(":")[0]
        if problem := known.unexpected(device, name, differing):
            found.wrong.append(f"{name}: {problem}{_listed(differing)}")
        elif differing:
            found.known.append(name)
    return found


def _listed(differing: Mapping[str, tuple[int, int]]) -> str:
    return "".join(
        f"\n         - {operator}: {mine}, natively {theirs}"
        for operator, (mine, theirs) in differing.items()
    )
