"""Owns: running test code in a child process: for other settings, for forks, for a fresh start."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

TIMEOUT_S = 180.0


def run_child(
    code: str, *, timeout: float = TIMEOUT_S, **env: str | None
) -> subprocess.CompletedProcess[str]:
    """Run `code` with this Python in a new process and return what became of it.

    Args:
        code: Python source; common indentation is removed.
        timeout: seconds after which the child is killed and TimeoutExpired raised.
        env: environment variables on top of this process's; None removes one.
    """
    variables = {**os.environ, **env}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={name: value for name, value in variables.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def output_of_child(code: str, *, timeout: float = TIMEOUT_S, **env: str | None) -> str:
    """Standard output of `code` run as by `run_child`, which must end without an error."""
    child = run_child(code, timeout=timeout, **env)
    assert child.returncode == 0, (
        f"the child ended with {child.returncode}\n{child.stdout}\n{child.stderr}"
    )
    return child.stdout
