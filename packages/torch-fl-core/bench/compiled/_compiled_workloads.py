"""Owns: what a row of `./dev bench compile` runs: a compiled step, how long its compilation took,
and at the end what the same step takes eagerly and what a call of a compiled region costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from _models import Step, make
from _workloads import Workload

_EAGER_TURNS = 5
_BOUNDARY_TURNS = 201
_CALLS = 200  # so few that most slices are not interrupted
_LONGEST_EAGER_S = 5.0
_LEAST_PHASE = 0.005


def build(device: torch.device, size: dict[str, Any]) -> Workload:
    """The compiled step; its first call, which compiles, is timed."""
    torch._inductor.config.fx_graph_cache = False  # what is timed is a compilation
    torch._functorch.config.enable_autograd_cache = False
    torch._inductor.config.cpp_cache_precompile_headers = (
        False  # they take longest, and are the same
    )
    step = make(device, size)
    compiled = torch.compile(step.function, mode=size["mode"], dynamic=False)
    last: list[torch.Tensor] = []

    def run(function: Callable[..., Any] = compiled) -> None:
        last[:] = [step.run(function)]

    began = time.perf_counter()
    run()
    _synchronize(device)
    compile_s = time.perf_counter() - began
    phases = _phases(compile_s)

    def result() -> float:
        return step.trace(last[0])

    def reports() -> dict[str, Any]:
        eager_ms = _eager_ms(run, step, device)
        found: dict[str, Any] = {"compile_s": compile_s, "phases_s": phases, "eager_ms": eager_ms}
        if device.type == "flagos":
            found["boundary_us"] = boundary_us(device)
        return found

    note = f"{size['dtype']}, {'forward and backward' if step.trains else 'forward'}"
    return Workload(run, result, units=step.units, note=note, reports=reports)


def _phases(compile_s: float) -> dict[str, float]:
    """Seconds of each phase that PyTorch times itself and that is no trifle; those inside a phase
    are part of its time."""
    times = torch._dynamo.utils.compilation_time_metrics
    found = {name: sum(seconds) for name, seconds in times.items()}
    least = _LEAST_PHASE * compile_s
    return {name: round(total, 3) for name, total in found.items() if total >= least}


def _eager_ms(run: Callable[..., None], step: Step, device: torch.device) -> float:
    """Milliseconds per unit of the step that is not compiled: the median of a few."""
    run(step.function)
    took: list[float] = []
    while len(took) < _EAGER_TURNS and sum(took) < _LONGEST_EAGER_S:
        _synchronize(device)
        began = time.perf_counter()
        run(step.function)
        _synchronize(device)
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e3 / step.units


def boundary_us(device: torch.device) -> float:
    """Microseconds that a call of a compiled region costs besides what is in it: three tensors
    in, one out, of the target and of flagos in turns."""
    from torch_fl import _C
    from torch_fl.plugins import selection

    target = torch.device(selection.current().target or "cpu", device.index or 0)
    own = torch.device("cpu") if target.type == "cpu" else target
    index = device.index or 0

    def call(arguments: list[Any]) -> list[Any]:
        first = arguments[0]
        arguments.clear()
        return [first]

    bounded = _C.CompiledRegion(call, [index], [])
    tensors = [torch.ones(4, device=device) for _ in range(3)]
    others = [torch.ones(4, device=own) for _ in range(3)]
    differences = [
        _call_us(bounded, tensors) - _call_us(call, others) for _ in range(_BOUNDARY_TURNS)
    ]
    return statistics.median(differences)


def _call_us(function: Callable[[list[Any]], Any], tensors: list[torch.Tensor]) -> float:
    began = time.perf_counter()
    for _ in range(_CALLS):
        function(list(tensors))
    return (time.perf_counter() - began) / _CALLS * 1e6


def _synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.get_device_module(device).synchronize()
