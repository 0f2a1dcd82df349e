"""Owns: the row of processes that start, run backward and exit: how many abort or are wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import _environment
import _summary
from _plan import Plan, left
from _rows import Row
from _sides import MEASURED

SCRIPT = MEASURED / "_start.py"
KEPT = 5
"""Texts of failed processes that are kept."""


def measure(row: Row, plan: Plan, record: dict[str, Any], save: Callable[[], None]) -> None:
    """Runs what is still missing, in rounds of as many processes as may run at a time."""
    deadline = plan.row_deadline(row)
    size = plan.size(row)
    counts = record.setdefault("counts", {"processes": 0, "aborts": 0, "wrong results": 0})
    failures: list[str] = record.setdefault("failures", [])

    def one(_: int) -> str:
        return _outcome(plan, size["timeout"])

    with ThreadPoolExecutor(size["at_a_time"]) as pool:
        while counts["processes"] < size["processes"]:
            left(deadline, 2.0 if plan.quick else 20.0)
            number = min(size["at_a_time"], size["processes"] - counts["processes"])
            for said in pool.map(one, range(number)):
                counts["processes"] += 1
                counts["aborts"] += said not in ("right", "wrong")
                counts["wrong results"] += said == "wrong"
                if said != "right" and len(failures) < KEPT:
                    failures.append(said)
            complete = counts["processes"] >= size["processes"]
            record |= {"date": _environment.today(), "environment": plan.environment()}
            record.update(_summary.of_counts(row, counts))
            record["state"] = "complete" if complete else "partial"
            record.pop("error", None)
            save()


def _outcome(plan: Plan, timeout: float) -> str:
    """`right`, `wrong`, or how the process ended. Raises OutOfTimeError if the run ends first."""
    try:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), plan.device.device],
            env=plan.device.environment(),
            capture_output=True,
            text=True,
            timeout=min(timeout, left(plan.deadline)),
            check=False,
        )
    except subprocess.TimeoutExpired:
        left(plan.deadline)
        return f"did not end within {timeout:.0f} s"
    said = done.stdout.strip()
    if done.returncode == 0 and said in ("right", "wrong"):
        return said
    return f"exit status {done.returncode} after {said!r}: {done.stderr[-500:].strip()}"
