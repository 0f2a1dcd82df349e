"""Owns: the row of threads on streams: what `_canaries.py` finds, with a control without order."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import _environment
import _summary
from _plan import Plan, left
from _rows import Row
from _sides import MEASURED, answer_of

SCRIPT = MEASURED / "_canaries.py"


def measure(row: Row, plan: Plan, record: dict[str, Any], save: Callable[[], None]) -> None:
    """One run, and the short control, which has no goal: it shows that the canaries would tell."""
    size = plan.size(row)
    left(plan.deadline, size["seconds"] + size["control_seconds"])
    found = _run(plan, size, size["seconds"], row.limit_s, careless=False)
    control = _run(plan, size, size["control_seconds"], row.limit_s, careless=True)
    counts = {"aborts": int("ended" in found), "wrong values": found.get("wrong", 0)}
    for name in ("checked", "handed"):
        counts[name] = found.get(name, 0)
    record |= {"counts": counts, "control": control}
    record["failures"] = [found["ended"]] if "ended" in found else []
    record |= {"date": _environment.today(), "environment": plan.environment()}
    record.update(_summary.of_counts(row, counts))
    record["state"] = "complete"
    record.pop("error", None)
    save()


def _run(
    plan: Plan, size: dict[str, Any], seconds: float, limit_s: float, *, careless: bool
) -> dict[str, Any]:
    """What the process counted, and under `ended` how it ended if not well."""
    spec = {
        "device": plan.device.device,
        "seconds": seconds,
        "largest": size["largest"],
        "matrix": size["matrix"],
        "careless": careless,
    }
    try:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), json.dumps(spec)],
            env=plan.device.environment(),
            capture_output=True,
            text=True,
            timeout=min(limit_s, left(plan.deadline)),
            check=False,
        )
    except subprocess.TimeoutExpired:
        left(plan.deadline)
        return {"ended": "it took too long"}
    last = done.stdout.rpartition("\n")[0].rpartition("\n")[2]
    if done.returncode == 0:
        return answer_of(last)
    found: dict[str, Any] = answer_of(last) if last else {}
    found["ended"] = f"exit status {done.returncode}: {done.stderr[-500:].strip()}"
    return found
