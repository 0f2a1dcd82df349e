"""Owns: on what a row was measured: machine, driver, and which build of this project."""

from __future__ import annotations

import datetime
import hashlib
import importlib.util
import os
import platform
import re
import subprocess
from pathlib import Path

PACKAGES = ("torch_fl", "torch_fl_cuda")


def today() -> str:
    """The date in UTC."""
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def cpu_model() -> str:
    """As Linux names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def driver(proc: Path = Path("/proc/driver/nvidia/version")) -> str:
    """The version of NVIDIA's driver, or `unknown`."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        return said.stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):  # a container may lack the program
        text = proc.read_text(encoding="utf-8") if proc.exists() else ""
        found = re.search(r"\d+\.\d+(\.\d+)?", text)
        return found.group() if found else "unknown"


def machine(target: str) -> dict[str, str]:
    """What is known of the machine without PyTorch."""
    found = {
        "machine": platform.machine(),
        "cpu": cpu_model(),
        "cores": str(len(os.sched_getaffinity(0))),
        "system": platform.platform(),
    }
    return {**found, "driver": driver()} if target == "cuda" else found


def build() -> str:
    """A fingerprint of the installed project; figures of different builds do not mix."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)  # of a top-level package: imports nothing
        folders = list(spec.submodule_search_locations or []) if spec else []
        files = {
            path.relative_to(folder): path
            for folder in map(Path, folders)
            for pattern in ("**/*.py", "**/*.so")
            for path in folder.glob(pattern)
        }
        for name, path in sorted(files.items()):
            digest.update(f"{package}/{name}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
