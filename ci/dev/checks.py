"""Owns: what must be true of a machine before the work starts, each with its clear error.

All of them run before the first download, so that nobody waits for torch to hear of a missing
compiler. Every function raises UserError or returns.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from ci.dev.errors import UserError
from ci.dev.layout import Environment, Layout

NEWEST_PYTHON = (3, 14)  # the newest for which the pinned torch has wheels
OLDEST_TORCH = (2, 11)
DISK_BYTES = 3 * 1024**3  # a CPU-only environment takes 1.3 GB, the build and its logs the rest

TRIAL = "#include <concepts>\n#include <span>\nint main() { return std::span<int>().size(); }\n"


def check_platform() -> None:
    if sys.platform != "linux":
        hint = " Use WSL 2 and run the same command there." if sys.platform == "win32" else ""
        raise UserError(f"torch-fl builds on Linux; this is {platform.system()}.{hint}")
    if platform.python_implementation() != "CPython":
        raise UserError(
            f"torch has wheels for CPython only; this is {platform.python_implementation()}. "
            "Run `python3 dev ...` with a CPython interpreter."
        )


def check_python(environment: Environment, version: tuple[int, int]) -> None:
    """The interpreter of the pinned environment must be one that torch ships wheels for."""
    if environment.kind == "pinned" and version > NEWEST_PYTHON:
        raise UserError(
            "Python {}.{} is newer than the pinned torch supports (up to {}.{}). Run the script "
            "with an older one (`python{}.{} dev ...`), or use a torch that you have installed "
            "yourself with --torch=installed.".format(*version, *NEWEST_PYTHON, *NEWEST_PYTHON)
        )


def _has_module(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None  # an empty folder has a spec, but no origin


def check_venv_module() -> None:
    # Debian and Ubuntu ship the venv module without the ensurepip that it needs.
    missing = [name for name in ("venv", "ensurepip") if not _has_module(name)]
    if missing:
        version = "{}.{}".format(*sys.version_info)
        raise UserError(
            f"this Python ({sys.executable}) cannot make a virtual environment: it has no "
            f"{' and no '.join(missing)} module. On Debian and Ubuntu: `apt install python3-venv` "
            f"(for this interpreter `apt install python{version}-venv`), then run this again."
        )


def check_disk(layout: Layout) -> None:
    free = shutil.disk_usage(layout.root).free
    if free < DISK_BYTES:
        raise UserError(
            f"too little disk: {free / 1024**3:.1f} GiB are free where {layout.root} lies; the "
            f"environment and the build need {DISK_BYTES / 1024**3:.0f} GiB (more when your pip "
            "configuration leads to a torch with CUDA libraries). Free some, then run this again."
        )


def compiler() -> list[str]:
    """The C++ compiler as a command: $CXX, else the one that CMake would find."""
    chosen = os.environ.get("CXX", "").split()
    if chosen:
        if shutil.which(chosen[0]) is None:
            raise UserError(
                f"CXX={os.environ['CXX']} is not there. Unset CXX or name an installed compiler."
            )
        return chosen
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return [name]
    raise UserError(
        "no C++ compiler: none of c++, g++ and clang++ is in PATH. On Debian and Ubuntu: "
        "`apt install g++`; on Fedora and RHEL: `dnf install gcc-c++`. Then run this again."
    )


def check_compiler() -> None:
    command = compiler()
    trial = subprocess.run(
        [*command, "-std=c++20", "-fsyntax-only", "-x", "c++", "-"],
        input=TRIAL,
        capture_output=True,
        text=True,
        check=False,
    )
    if trial.returncode != 0:
        said = (trial.stderr.strip().splitlines() or ["(nothing)"])[0]
        raise UserError(
            f"the compiler `{' '.join(command)}` cannot compile C++20; it said: {said}. g++ 11 or "
            "newer or clang 14 or newer with a C++ standard library is needed; name another one "
            "with CXX=g++-12."
        )


def check_python_headers() -> None:
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        raise UserError(
            f"this Python ({sys.executable}) has no C headers ({header} is missing). On Debian "
            "and Ubuntu: `apt install python3-dev`; on Fedora and RHEL: `dnf install "
            "python3-devel`. Then run this again."
        )


def torch_version(environment: Environment) -> str:
    """Version of the environment's torch, read without importing it; empty when there is none."""
    path = environment.torch_version_file()
    if path is None or not path.exists():
        return ""
    found = re.search(r"__version__\s*=\s*['\"]([^'\"]+)", path.read_text(encoding="utf-8"))
    return found.group(1) if found else ""


def check_installed_torch(environment: Environment) -> None:
    """A torch that we did not choose must be one that the sources support."""
    if environment.kind == "pinned":
        return
    version = torch_version(environment)
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < OLDEST_TORCH:
        raise UserError(
            "--torch=installed: the torch at {} is {}; torch-fl needs {}.{} or newer. Upgrade it, "
            "or leave the option out to get the pinned torch in .venv.".format(
                environment.installed_torch and environment.installed_torch.parent,
                version or "of unknown version",
                *OLDEST_TORCH,
            )
        )
