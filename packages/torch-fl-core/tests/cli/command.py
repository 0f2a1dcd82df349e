"""Owns: running the command as its script does: in a process that has imported nothing yet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

_SCRIPT = "import sys, torch_fl_entry; sys.exit(torch_fl_entry.main())"


def run(
    *arguments: str, timeout: float = 120.0, **env: str | None
) -> subprocess.CompletedProcess[str]:
    """Run `torch-fl` with these arguments, without FLAGOS_* variables but those in `env`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLAGOS_")}
    variables = {**kept, "TORCH_DEVICE_BACKEND_AUTOLOAD": "1", **env}
    return subprocess.run(
        [sys.executable, "-c", _SCRIPT, *arguments],
        env={name: value for name, value in variables.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def output(*arguments: str, **env: str | None) -> str:
    """Standard output of a command that must succeed."""
    done = run(*arguments, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def answer(*arguments: str, status: int = 0, **env: str | None) -> Any:
    """What a command says with --json."""
    done = run(*arguments, "--json", **env)
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout)
