"""Owns: what this machine can bear. Available memory and cores, containers' limits included."""

from __future__ import annotations

import os
from pathlib import Path

from ci.dev.errors import UserError

GIB = 1024**3
COMPILER_BYTES = int(1.2 * GIB)  # the most that one g++ takes on our sources
ASAN_COMPILER_BYTES = int(1.8 * GIB)  # the same with -fsanitize=address
LEAST_BYTES = int(1.5 * GIB)  # one compiler and the build tools around it
MOST_JOBS = 16  # the core has few enough sources that more would only wait


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return None  # no such limit ("max" is no number either)


def available_memory(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that new processes may use: the machine's, or what the container's limit leaves."""
    available = None
    try:
        for line in (proc / "meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
    except OSError:
        available = None
    if available is None:
        available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    pairs = (
        (cgroup / "memory.max", cgroup / "memory.current", cgroup / "memory.stat", "inactive_file"),
        (
            cgroup / "memory" / "memory.limit_in_bytes",
            cgroup / "memory" / "memory.usage_in_bytes",
            cgroup / "memory" / "memory.stat",
            "total_inactive_file",
        ),
    )
    for limit_file, used_file, stat_file, cache_key in pairs:
        limit, used = _number(limit_file), _number(used_file)
        if limit is not None and used is not None:
            # The page cache counts as used there, but the kernel gives it back when asked.
            available = min(available, limit - used + _cache(stat_file, cache_key))
    return max(available, 0)


def _cache(stat: Path, key: str) -> int:
    try:
        lines = stat.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.split()[:1] == [key]), 0)


def cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores this process may use: its affinity, cut by a container's CPU quota."""
    count = len(os.sched_getaffinity(0))
    try:
        quota, period = (cgroup / "cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return count
    return max(1, min(count, round(int(quota) / int(period)))) if quota != "max" else count


def build_jobs(per_compiler: int = COMPILER_BYTES) -> int:
    """How many compilers may run at once. A user's MAX_JOBS or CMAKE_BUILD_PARALLEL_LEVEL wins.

    Raises UserError where not even one fits.
    """
    for name in ("MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL"):
        chosen = os.environ.get(name, "").strip()
        if chosen:
            if not chosen.isdigit() or int(chosen) < 1:
                raise UserError(
                    f"{name}={chosen} is not a number of parallel compilers (1, 2, ...)."
                )
            return int(chosen)
    memory = available_memory()
    least = max(LEAST_BYTES, per_compiler)
    if memory < least:
        raise UserError(
            f"too little memory: {memory / GIB:.1f} GiB are available and compiling the core needs "
            f"{least / GIB:.1f} GiB. Close other programs, raise the container's memory limit or "
            "add swap and say MAX_JOBS=1 (that also skips this check)."
        )
    return max(1, min(cores(), memory // per_compiler, MOST_JOBS))
