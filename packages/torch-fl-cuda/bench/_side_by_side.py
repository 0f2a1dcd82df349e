"""Owns: two profiles of the same steps, put side by side."""

from __future__ import annotations

from typing import Any

SHOWN = 25
"""Entries of a list that stay."""


def side_by_side(native: dict[str, Any], flagos: dict[str, Any]) -> dict[str, Any]:
    """Two profiles in one, entry beside entry, those first that differ most.

    Of each entry microseconds and calls in a step, `[us, calls]`, 0 where a side has none (or not
    among its costly ones).
    """
    times = ("steps", "wall_us", "busy_us", "gap_us", "launches")
    found: dict[str, Any] = {
        "native": {name: native[name] for name in times},
        "flagos": {name: flagos[name] for name in times},
    }
    none = {"us": 0.0, "calls": 0.0}
    for part in ("host", "kernels"):
        rows = [
            {
                "name": name,
                "native": list(native[part].get(name, none).values()),
                "flagos": list(flagos[part].get(name, none).values()),
            }
            for name in {**native[part], **flagos[part]}
        ]
        rows.sort(key=lambda row: -abs(row["flagos"][0] - row["native"][0]))
        found[part] = rows[:SHOWN]
    return found
