"""Owns: building packages/torch-fl-core into an environment, and knowing when that is due."""

from __future__ import annotations

import os
from pathlib import Path

from ci.dev import checks, machine, process, state
from ci.dev.errors import StepError, UserError
from ci.dev.layout import Environment, Layout

CPU_SECONDS = 330  # compiling the whole core once; with the links about 3 minutes on 2 cores
BUILD_VARIABLES = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CMAKE_ARGS")


def _files(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".so", ".pyc")
    )


def sources(core: Path) -> list[Path]:
    """The files whose contents decide what the build makes."""
    files = [core / "pyproject.toml", core / "CMakeLists.txt"]
    for folder in ("cmake", "csrc", "include"):
        files += _files(core / folder)
    return files


def inputs(environment: Environment) -> str:
    """Fingerprint of everything that the installed core was made from."""
    layout = environment.layout
    version_file = environment.torch_version_file()
    torch = version_file.read_text(encoding="utf-8") if version_file else "no torch"
    settings = [f"{name}={os.environ.get(name, '')}" for name in BUILD_VARIABLES]
    settings += [f"{name}={os.environ[name]}" for name in sorted(os.environ) if "SKBUILD" in name]
    # An editable install holds a table of the Python files it found: their names count, their
    # contents do not. Console scripts and CMake's cache hold absolute paths, hence the root.
    python = [str(path.relative_to(layout.core)) for path in _files(layout.core / "src")]
    values = [str(layout.root), str(environment.python), torch, *settings, *python]
    return state.fingerprint(values, sources(layout.core), layout.root)


def is_installed(environment: Environment) -> bool:
    sites = environment.site_packages()
    found = any(True for site in sites for _ in site.glob("torch_fl_core-*.dist-info/RECORD"))
    return found and environment.script("torch-fl").exists()


def check_sources(layout: Layout) -> None:
    missing = [
        name for name in ("pyproject.toml", "CMakeLists.txt") if not (layout.core / name).exists()
    ]
    if missing:
        raise UserError(
            f"{layout.core} has no {' and no '.join(missing)}: this checkout is incomplete. Get "
            "the missing files back (`git status` names them, `git checkout -- packages` restores "
            "them), then run this again."
        )


def build_folder(environment: Environment) -> str:
    """scikit-build-core's build-dir for an environment, relative to the core.

    One for each kind and torch: CMake's cache remembers the torch that it found.
    """
    if environment.kind == "pinned":
        return "build/{wheel_tag}"  # the package's own setting, said again for who changes that one
    return f"build/{environment.kind}-torch-{checks.torch_version(environment)}-{{wheel_tag}}"


def variables(environment: Environment, jobs: int, folder: str, **extra: str) -> dict[str, str]:
    """Process environment of a core build. (As variables, not as --config-settings: the pip that
    Python 3.10 brings along does not know that option.)"""
    return environment.variables(
        CMAKE_BUILD_PARALLEL_LEVEL=str(jobs),
        CMAKE_EXPORT_COMPILE_COMMANDS="ON",
        SKBUILD_BUILD_DIR=folder,
        # The build imports torch. An older, broken build of ours must not break that import.
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
        PIP_PROGRESS_BAR="off",
        **extra,
    )


def pip_build(
    environment: Environment, arguments: list[str], env: dict[str, str], name: str
) -> None:
    """`pip install` of the core from source. Raises StepError with the compiler's words."""
    layout = environment.layout
    command = [str(environment.python), "-m", "pip", "install", "--verbose"]
    command += ["--no-build-isolation", "--no-deps", *arguments]
    log = layout.work / f"{name}.log"
    status = process.run_logged(command, env=env, cwd=layout.root, log=log, title="compiling")
    if status == 0:
        return
    extract = process.log_extract(log)
    hint = ""
    if "Killed signal" in extract:
        hint = "\nThe system ran out of memory and ended a compiler: run it again with MAX_JOBS=1."
    raise StepError(
        f"the core could not be built (exit code {status}).\n{extract}\n  whole log: {log}{hint}"
    )


def install_core(environment: Environment) -> None:
    """Editable install of the core; only what changed is compiled again."""
    jobs = machine.build_jobs()
    env = variables(environment, jobs, build_folder(environment))
    pip_build(environment, ["--editable", str(environment.layout.core)], env, "build-core")
