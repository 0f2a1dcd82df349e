"""Owns: the rows as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from _rows import Row


def number(value: float) -> str:
    """Four digits, and whole numbers as they are."""
    return f"{value:.0f}" if value == int(value) else f"{value:.4g}"


def figure_text(figure: Mapping[str, Any]) -> str:
    """A figure with its interval, goal and verdict."""
    interval = ""
    if "interval" in figure:
        interval = " [{}, {}]".format(*(f"{value:.3f}" for value in figure["interval"]))
    value = f"{figure['value']:.3f}" if figure["unit"] else number(figure["value"])
    goal = f"  goal {figure['goal']}: {figure['verdict']}" if figure["goal"] != "–" else ""
    return f"{figure['figure']} {value}{interval}{goal}"


def lines(row: Row, record: Mapping[str, Any]) -> list[str]:
    """What is known of a row: one line, and one for each of its figures."""
    state = record.get("state", "untested")
    said = [f"{row.name:<22} {record.get('verdict', state):<8}{_medians(record)}"]
    if state not in ("complete", "untested"):
        said[0] += f"  ({state}: {len(record.get('pairs', []))} pairs)"
    said += [f"    {figure_text(figure)}" for figure in record.get("figures", [])]
    if record.get("agreement"):
        said.append(f"    results of both sides: {record['agreement']}")
    said += [f"    {name}: {record[name]}" for name in ("counts", "control") if name in record]
    said += [
        f"    {name}: {str(record[name]).splitlines()[0]}"
        for name in ("error", "reason")
        if record.get(name)
    ]
    said += [f"    {failure}" for failure in record.get("failures", [])]
    return said


def operator_lines(record: Mapping[str, Any]) -> list[str]:
    """Where a row has operators, one line for each: native, flagos, ratio."""
    return [
        f"    {each['name']:<26}{each['native']:>10.0f}{each['flagos']:>10.0f}{each['ratio']:>8.3f}"
        for each in record.get("operators", [])
    ]


def profile_lines(found: Mapping[str, Any]) -> list[str]:
    """Two profiles side by side, in microseconds per step."""
    said = [f"{side:<8}{found[side]}" for side in ("native", "flagos")]
    for part in ("host", "kernels"):
        said.append(f"{part:<60}{'native us':>12}{'calls':>8}{'flagos us':>12}{'calls':>8}")
        for entry in found[part]:
            (us, calls), (own_us, own_calls) = entry["native"], entry["flagos"]
            said.append(
                f"{entry['name'][:58]:<60}{us:>12.1f}{calls:>8.1f}{own_us:>12.1f}{own_calls:>8.1f}"
            )
    return said


def _medians(record: Mapping[str, Any]) -> str:
    if "native" not in record or "flagos" not in record:
        return ""
    native, flagos = record["native"]["median"], record["flagos"]["median"]
    return f"native {native:.4g}, flagos {flagos:.4g} {record['unit']}"
