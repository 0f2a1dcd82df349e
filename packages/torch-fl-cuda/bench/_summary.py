"""Owns: what a row's measurements come to: its figures, their goals, its verdict."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import _comparison
from _comparison import Estimate, Turn
from _rows import PEAK, THROUGHPUT, Row


def figure(row: Row, name: str, estimate: Estimate | float) -> dict[str, Any]:
    """One figure beside its goal."""
    goal = next(goal for goal in row.goals if goal.figure == name)
    value = estimate.value if isinstance(estimate, Estimate) else estimate
    found: dict[str, Any] = {"figure": name, "value": round(value, 4)}
    if isinstance(estimate, Estimate):
        found["interval"] = [round(estimate.low, 4), round(estimate.high, 4)]
    return {
        **found,
        "unit": goal.unit,
        "goal": str(goal),
        "plugin_today": goal.plugin_today,
        "verdict": goal.verdict(value),
    }


def verdict(figures: list[dict[str, Any]], agreement: str = "") -> str:
    """Of a whole row: `wrong`, `over`, `ok`, or `-` where nothing has a goal."""
    if agreement == "different":
        return "wrong"
    verdicts = {figure["verdict"] for figure in figures}
    return next((each for each in ("over", "ok") if each in verdicts), "-")


def of_pairs(row: Row, pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures of a row with pairs; each has its turns and what both sides said at the end."""
    turns = turns_of(pairs)
    ends = [(pair["native"], pair["device"]) for pair in pairs]
    peaks = [(native["peak_bytes"], device["peak_bytes"]) for native, device in ends]
    figures = []
    for goal in row.goals:
        if goal.figure == THROUGHPUT:
            figures.append(figure(row, THROUGHPUT, _comparison.throughput(turns)))
        elif goal.figure == PEAK:
            if all(native and device for native, device in peaks):
                figures.append(figure(row, PEAK, _comparison.cost(peaks)))
        else:
            figures.append(figure(row, goal.figure, _reported(goal.figure, ends)))
    agreement = agreement_of(row, pairs)
    return {
        "unit": row.unit,
        "native": _medians(turns, [native for native, _ in ends], 0),
        "flagos": _medians(turns, [device for _, device in ends], 1),
        "figures": figures,
        "agreement": agreement,
        "verdict": verdict(figures, agreement),
    }


def turns_of(pairs: Sequence[dict[str, Any]]) -> list[list[Turn]]:
    """What both sides took in each turn of each pair."""
    return [[(native, device) for native, device in pair["turns"]] for pair in pairs]


def agreement_of(row: Row, pairs: Sequence[dict[str, Any]]) -> str:
    """Whether both sides computed the same in all pairs. Where a process has both, it has compared
    more than their results: the pair's `equal`."""
    if not all(pair.get("equal", True) for pair in pairs):
        return "different"
    results = [(_results(pair["native"]), _results(pair["device"])) for pair in pairs]
    return _comparison.agreement(results, row.tolerance)


def of_counts(row: Row, counts: Mapping[str, float]) -> dict[str, Any]:
    """Figures of a row that counts what went wrong."""
    figures = [figure(row, goal.figure, counts[goal.figure]) for goal in row.goals]
    return {"unit": row.unit, "figures": figures, "verdict": verdict(figures)}


def _reported(name: str, ends: list[tuple[dict[str, Any], dict[str, Any]]]) -> float:
    """How far the device's worst value is above native's: natively too it need not be 0."""
    natives, devices = ([end["reports"][name] for end in side] for side in zip(*ends, strict=True))
    return max(0.0, float(max(devices) - max(natives)))


def _results(end: dict[str, Any]) -> tuple[float, float]:
    return float(end["first"]), float(end["last"])


def _medians(
    turns: list[list[tuple[float, float]]], ends: list[dict[str, Any]], side: int
) -> dict[str, Any]:
    peaks = [end["peak_bytes"] for end in ends if end["peak_bytes"]]
    found: dict[str, Any] = {
        "median": round(statistics.median(turn[side] for pair in turns for turn in pair), 5),
        "start_s": round(statistics.median(end["start_s"] for end in ends), 2),
        "result": ends[-1]["last"],
    }
    if peaks:
        found["peak_bytes"] = round(statistics.median(peaks))
    reports = {
        name: max(end["reports"][name] for end in ends) for name in ends[0].get("reports", {})
    }
    return {**found, "reports": reports} if reports else found
