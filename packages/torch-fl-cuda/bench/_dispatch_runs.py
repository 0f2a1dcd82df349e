"""Owns: the row of host time per operator: several runs of the core's own benchmark.

Within a run the slices of both sides alternate in one process; each run is a new process, so what
a process happens to get varies between them.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _comparison
import _environment
import _summary
from _plan import Plan, left
from _rows import Row
from _sides import ChildError, answer_of

SCRIPT = Path(__file__).parents[2] / "torch-fl-core" / "bench" / "dispatch.py"
FIRST_RUN_S = 45.0


def is_operator(row: dict[str, Any]) -> bool:
    """Whether a row of the core's benchmark is an operator: no training step, import or bias."""
    counted = row["tensor_arguments"] is not None and row["goal_ratio"] is None
    return counted and not str(row["name"]).startswith("bias:")


def measure(row: Row, plan: Plan, record: dict[str, Any], save: Callable[[], None]) -> None:
    """Adds runs to the record until there are as many as a row has pairs; saves after each."""
    deadline = plan.row_deadline(row)
    runs: list[dict[str, Any]] = record.setdefault("pairs", [])
    while len(runs) < plan.pairs_now(row):
        left(deadline, max((run["s"] for run in runs), default=FIRST_RUN_S))
        begin = time.monotonic()
        data = _run(plan, len(runs), deadline, quick=plan.size(row)["quick"])
        operators = [each for each in data["rows"] if is_operator(each)]
        ns = {each["name"]: [each["native_ns"], each["device_ns"]] for each in operators}
        ratios = {each["name"]: round(each["ratio"], 4) for each in operators}
        runs.append({"s": round(time.monotonic() - begin, 1), "ns": _rounded(ns), "ratio": ratios})
        record |= {"date": _environment.today(), "environment": plan.environment()}
        record.update(_figures(row, runs))
        record["state"] = "complete" if len(runs) >= plan.pairs_of(row) else "partial"
        record.pop("error", None)
        save()


def _run(plan: Plan, seed: int, deadline: float, *, quick: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "dispatch.json"
        command = [sys.executable, str(SCRIPT), "--json", str(output), "--seed", str(seed)]
        command += ["--imports", "0", *(["--quick"] if quick else [])]
        command += ["--native", plan.native.device, "--device", plan.device.device]
        try:
            done = subprocess.run(
                command,
                env=plan.device.environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=left(deadline),
                check=False,
            )
        except subprocess.TimeoutExpired:
            left(plan.deadline)
            raise ChildError("the dispatch benchmark took too long") from None
        if done.returncode != 0 or not output.exists():
            said = done.stdout[-1500:].strip()
            raise ChildError(f"the dispatch benchmark ended with {done.returncode}: {said}")
        data: dict[str, Any] = answer_of(output.read_text(encoding="utf-8"))
    return data


def _rounded(ns: dict[str, list[float]]) -> dict[str, list[float]]:
    return {name: [round(value, 1) for value in values] for name, values in ns.items()}


def _figures(row: Row, runs: list[dict[str, Any]]) -> dict[str, Any]:
    estimates = _comparison.operators([run["ratio"] for run in runs])
    figures = [_summary.figure(row, goal.figure, estimates.pop(goal.figure)) for goal in row.goals]
    operators = [
        {
            "name": name,
            "native": _middle(runs, name, 0),
            "flagos": _middle(runs, name, 1),
            "ratio": round(each.value, 4),
            "interval": [round(each.low, 4), round(each.high, 4)],
        }
        for name, each in estimates.items()
    ]
    return {
        "unit": row.unit,
        "figures": figures,
        "operators": operators,
        "verdict": _summary.verdict(figures),
    }


def _middle(runs: list[dict[str, Any]], name: str, side: int) -> float:
    return round(float(statistics.median(run["ns"][name][side] for run in runs)), 1)
