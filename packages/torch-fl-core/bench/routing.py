"""Owns: what routes cost a call: nothing on, a dtype condition, a scope, a refusal, a report.

    ./dev bench routing [--json FILE]

Every row is `relu` on flagos, plain against in the state that the row names, in interleaved slices.
The first row is the dispatching kernel alone, in C++ (`_entry_cost.cpp`).
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from _slices import Comparison, LocalSide, Statement, add_pairs, calls_per_slice
from dispatch import _environment

import torch_fl
from torch_fl import _C, routing

ROUNDS = 20
PAIRS = 12
GOAL_ENTRY_NS = 2.0

State = Callable[[], Callable[[], object]]
"""Brings the state about, and returns what ends it."""


class Within:
    """A side whose slices run in a state.

    Entering and leaving are not timed, and leave nothing of the caches: a slice is run before the
    one that counts.
    """

    def __init__(self, side: LocalSide, state: State) -> None:
        self._side, self._state = side, state

    def seconds_per_call(self, calls: int) -> float:
        """See `Side`."""
        leave = self._state()
        try:
            self._side.seconds_per_call(calls)
            return self._side.seconds_per_call(calls)
        finally:
            leave()


def _set(chain: str, pattern: str = "relu.default") -> State:
    def state() -> Callable[[], object]:
        routing.set(pattern, chain)
        return lambda: routing.set(pattern, None)

    return state


def _scope() -> Callable[[], object]:
    scope = routing.use({"relu.default": "boxing"})
    scope.__enter__()
    return lambda: scope.__exit__(None, None, None)


def _breadcrumbs() -> Callable[[], object]:
    _C.set_breadcrumbs(True)
    return lambda: _C.set_breadcrumbs(False)


def _report() -> Callable[[], object]:
    report = routing.report()
    report.__enter__()
    return lambda: report.__exit__(None, None, None)


def _plain() -> Callable[[], object]:
    return lambda: None


STATES: dict[str, State] = {
    "bias: plain against itself": _plain,
    "a condition on another dtype": _set("cpu", "relu.default[int64]"),
    "a scope that names it": _scope,
    "a chain whose kernel is limited to another dtype": _set("limited, boxing"),
    "a Python kernel that refuses, then boxing": _set("refusing, boxing"),
    "cpu, on copies": _set("cpu"),
    "a report": _report,
    "breadcrumbs": _breadcrumbs,
}


def _entry_ns() -> float:
    source = Path(__file__).with_name("_entry_cost.cpp")
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/entry_cost"
        subprocess.run(["g++", "-O2", "-std=c++20", "-o", program, str(source)], check=True)
        return float(subprocess.run([program], capture_output=True, check=True).stdout)


def main() -> int:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description="What routes cost a call.")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    routing.register("refusing", {"relu": lambda x: NotImplemented})
    limit = frozenset({torch.int64})
    routing.register("limited", {"relu": routing.Kernel(lambda x: NotImplemented, limit)})
    torch.set_num_threads(1)
    gc.disable()
    rng = random.Random(0)
    x = torch.randn(4, 4, device="flagos")
    side = LocalSide(Statement("f(x)", {"f": torch.relu, "x": x}), torch_fl.flagos.synchronize)
    environment = _environment(torch.device("flagos"), torch.device("cpu"))
    print(", ".join(f"{name} {value}" for name, value in environment.items()))
    entry = _entry_ns()
    verdict = "ok" if entry <= GOAL_ENTRY_NS else "over"
    print(f"{'the dispatching kernel, alone':<56}{entry:>+10.2f} ns, goal 2 ns: {verdict}")
    rows = [{"name": "entry", "difference_ns": entry, "goal_ns": GOAL_ENTRY_NS}]
    calls = calls_per_slice(side, 5000)
    comparisons = {name: Comparison() for name in STATES}
    plain = Within(side, _plain)
    with torch.no_grad():
        for _ in range(ROUNDS):
            for name in rng.sample(list(STATES), len(STATES)):
                within = Within(side, STATES[name])
                add_pairs(comparisons[name], plain, within, calls, PAIRS, rng)
    for name, figures in comparisons.items():
        print(f"{name:<56}{figures.difference_ns:>+10.0f} ns +- {figures.error_ns:.0f}")
        rows.append({"name": name, "difference_ns": figures.difference_ns})
    if options.json:
        data = {"environment": environment, "rows": rows}
        options.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
