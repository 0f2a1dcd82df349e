"""Owns: the virtual environments: made, completed after an interruption, made again when broken.

A `.venv` that starts is never deleted: it may be one that the user made.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ci.dev import checks, packages, process, state
from ci.dev.errors import StepError
from ci.dev.layout import Environment


def inputs(environment: Environment) -> str:
    """Fingerprint of what the environment was made for."""
    values = [str(environment.layout.root), environment.kind]
    if environment.kind != "pinned":
        # Another interpreter or another torch there: the environment has to look at that one.
        values += [
            sys.base_prefix,
            "{}.{}".format(*sys.version_info),
            str(environment.installed_torch),
        ]
    return state.fingerprint(values)


def starts(environment: Environment) -> bool:
    """Whether the environment's interpreter runs and has its pip."""
    if not environment.python.exists():
        return False
    return _ask(environment, "import pip") == ""


def _ask(environment: Environment, program: str) -> str | None:
    """What a short program prints in the environment; None when it fails."""
    try:
        answer = subprocess.run(
            [str(environment.python), "-c", program],
            env=environment.variables(),
            cwd=environment.layout.root,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def make(environment: Environment) -> None:
    """Makes the virtual environment, or completes what an interrupted run or a user began."""
    folder = environment.folder
    if folder is None:
        return
    log = environment.layout.work / "venv.log"
    if environment.kind == "installed":
        if not (starts(environment) and _sees_torch(environment)):
            # It holds nothing that takes long, and may stem from another interpreter: anew.
            _venv(environment, ["--system-site-packages", "--clear"], log)
            _show_torch(environment)
    elif not starts(environment):
        packages.drop_unfinished(environment)
        _venv(environment, [], log)
        if not starts(environment):
            print(f"  {folder.name} cannot be completed; making it anew")
            _venv(environment, ["--clear"], log)
    if not starts(environment):
        raise StepError(f"{environment.python} does not start or has no pip; see {log}")
    version = _ask(environment, "import sys; print(*sys.version_info[:2])") or "0 0"
    major, minor = (int(number) for number in version.split())
    checks.check_python(environment, (major, minor))


def _venv(environment: Environment, options: list[str], log: Path) -> None:
    # The base interpreter: ours may be the very environment that is to be made again.
    python = getattr(sys, "_base_executable", None) or sys.executable
    command = [python, "-m", "venv", *options, str(environment.folder)]
    env, root = environment.variables(), environment.layout.root
    status = process.run_logged(command, env=env, cwd=root, log=log, title="venv")
    if status:
        raise StepError(
            f"the Python environment could not be made (exit code {status}).\n"
            f"{process.log_extract(log)}\n  whole log: {log}"
        )


def _sees_torch(environment: Environment) -> bool:
    """Whether the environment imports the very torch that the interpreter of `./dev` has."""
    question = "import importlib.util as u; s = u.find_spec('torch'); print(s and s.origin)"
    return _ask(environment, question) == str(environment.installed_torch)


def _show_torch(environment: Environment) -> None:
    """Makes the interpreter's torch visible where it is itself inside a virtual environment."""
    if environment.installed_torch is None or _sees_torch(environment):
        return
    folder = environment.installed_torch.parent.parent
    for site in environment.site_packages():
        # Such a line adds the folder behind our own packages.
        (site / "installed-torch.pth").write_text(f"{folder}\n", encoding="utf-8")
    if not _sees_torch(environment):
        raise StepError(
            f"the torch in {folder} cannot be seen from {environment.folder}. Try --no-venv, "
            "which installs into the interpreter that has it."
        )
