"""Owns: where the time of some steps goes in one process: operators, kernels, gaps between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

MOST = 80
"""Entries that are kept of each list, the costly ones."""
Span = tuple[float, float]


def busy(spans: Iterable[Span]) -> float:
    """Time in which at least one of the spans (begin, end) goes on."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def _largest(costs: dict[str, list[float]], steps: int) -> dict[str, dict[str, float]]:
    names = sorted(costs, key=lambda name: -costs[name][0])[:MOST]
    return {
        name[:120]: {
            "us": round(costs[name][0] / steps, 2),
            "calls": round(costs[name][1] / steps, 2),
        }
        for name in names
    }


def profile(
    step: Callable[[], object], steps: int, target: str, synchronize: Callable[[], None]
) -> dict[str, Any]:
    """Profiles steps with torch.profiler.

    Returns microseconds per step: `host` (operators, their own time), `kernels` (by name),
    `wall_us`, `busy_us` and `gap_us` (in which the device has nothing to do between its first and
    last kernel; None where kernels are not seen), and the number of `launches`.
    """
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    activities = [ProfilerActivity.CPU]
    if target == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profiler(activities=activities):  # the first takes longer to begin
        step()
    synchronize()
    with profiler(activities=activities) as found:
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        synchronize()
        wall = (time.perf_counter() - begin) * 1e6
    host: dict[str, list[float]] = {}
    kernels: dict[str, list[float]] = {}
    spans: list[Span] = []
    for event in found.events() or []:
        span = (event.time_range.start, event.time_range.end)
        if event.device_type == DeviceType.CPU:
            costs, own = host, event.self_cpu_time_total
        elif getattr(event, "is_user_annotation", False):
            continue  # the span of an optimizer's step, say, with the gaps in it
        else:
            costs, own = kernels, span[1] - span[0]
            spans.append(span)
        entry = costs.setdefault(event.name, [0.0, 0.0])
        entry[0] += own
        entry[1] += 1
    occupied = busy(spans) / steps
    whole = (max(end for _, end in spans) - min(begin for begin, _ in spans)) if spans else 0.0
    return {
        "steps": steps,
        "wall_us": round(wall / steps, 1),
        "busy_us": round(occupied, 1) if spans else None,
        "gap_us": round(whole / steps - occupied, 1) if spans else None,
        "launches": round(len(spans) / steps, 1) if spans else None,
        "host": _largest(host, steps),
        "kernels": _largest(kernels, steps),
    }
