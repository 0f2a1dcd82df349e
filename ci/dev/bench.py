"""Owns: `./dev bench NAME`: finds a benchmark by name and runs it on an up-to-date build."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ci.dev import bootstrap
from ci.dev.errors import UserError
from ci.dev.layout import Environment


def benchmarks(root: Path) -> dict[str, Path]:
    """Name to file: every script in a package's bench folder, except helpers (`_name.py`)."""
    scripts = sorted(root.glob("packages/*/bench/*.py"))
    return {path.stem: path for path in scripts if not path.stem.startswith("_")}


def main(environment: Environment, name: str, arguments: Sequence[str]) -> int:
    """Becomes the benchmark: its exit status is ours. Paths among its arguments stay the user's."""
    known = benchmarks(environment.layout.root)
    if not name:
        print("\n".join(known) or "there are no benchmarks yet")
        return 0
    script = known.get(name.replace("-", "_"))
    if script is None:
        choice = ", ".join(known) or "none (no packages/*/bench/*.py)"
        raise UserError(f"there is no benchmark {name}. The benchmarks are: {choice}.")
    bootstrap.prepare(environment, "run")
    command = [str(environment.python), str(script), *arguments]
    os.execve(command[0], command, environment.variables())
