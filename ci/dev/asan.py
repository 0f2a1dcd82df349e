"""Owns: `./dev asan`: a second build of the core with AddressSanitizer, and the threads test on it.

torch and the test tools are the environment's own; only the core is another one. It cannot simply
be put before the others on PYTHONPATH: the editable install's import hook is asked before any path.
So the sanitized build gets a small environment of its own, in which the other one's packages are
visible as plain folders, without their hooks.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ci.dev import bootstrap, build, checks, machine, process, state
from ci.dev.errors import StepError, UserError
from ci.dev.layout import Environment

TEST = "packages/torch-fl-core/tests/test_threads.py"
SETTINGS = {
    "SKBUILD_CMAKE_BUILD_TYPE": "RelWithDebInfo",  # reports name files and lines
    "SKBUILD_INSTALL_STRIP": "false",
}
OPTIONS = "detect_leaks=0:halt_on_error=1:abort_on_error=0:exitcode=99"


def runtime_libraries() -> list[str]:
    """What LD_PRELOAD has to name. libstdc++ too: python does not link it, and the sanitizer looks
    for its __cxa_throw when it starts."""
    command = checks.compiler()
    found = []
    for name in ("libasan.so", "libstdc++.so.6"):
        answer = subprocess.run(
            [*command, f"-print-file-name={name}"], capture_output=True, text=True, check=False
        )
        path = Path(answer.stdout.strip())
        # The compiler repeats the bare name when it has no such file.
        if answer.returncode or not path.is_absolute() or not path.exists():
            raise UserError(
                f"the compiler `{' '.join(command)}` has no {name}. `./dev asan` needs g++ with "
                "its sanitizer runtime (Debian and Ubuntu: `apt install g++`, Fedora: `dnf "
                "install libasan`); choose the compiler with CXX=g++."
            )
        found.append(str(path.resolve()))
    return found


def _make_environment(environment: Environment, folder: Path) -> None:
    env, root = environment.variables(), environment.layout.root
    command = [str(environment.python), "-m", "venv", "--without-pip", "--clear", str(folder)]
    log = environment.layout.work / "asan-venv.log"
    if process.run_logged(command, env=env, cwd=root, log=log, title="venv"):
        raise StepError(f"the environment could not be made.\n{process.log_extract(log)}")
    program = "import json, sys; print(json.dumps(sys.path[1:]))"
    answer = subprocess.run(
        [str(environment.python), "-c", program],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    packages = [path for path in json.loads(answer.stdout) if path.endswith("-packages")]
    site = next(iter(folder.glob("lib/python3*/site-packages")))
    (site / "packages.pth").write_text("\n".join(packages) + "\n", encoding="utf-8")


def _build(environment: Environment, target: Path) -> None:
    jobs = machine.build_jobs(machine.ASAN_COMPILER_BYTES)
    folder = "build/asan-{wheel_tag}"
    if environment.kind != "pinned":
        folder = f"build/asan-torch-{checks.torch_version(environment)}-{{wheel_tag}}"
    defines = [value for value in (os.environ.get("SKBUILD_CMAKE_DEFINE"),) if value]
    env = build.variables(
        environment,
        jobs,
        folder,
        **SETTINGS,
        SKBUILD_CMAKE_DEFINE=";".join([*defines, "TORCH_FL_SANITIZE=address"]),
    )
    shutil.rmtree(target, ignore_errors=True)  # pip adds to a target folder, it removes nothing
    arguments = ["--target", str(target), str(environment.layout.core)]
    build.pip_build(environment, arguments, env, "build-asan")


def main(environment: Environment, arguments: Sequence[str]) -> int:
    layout = environment.layout
    if not (layout.root / TEST).exists():
        raise UserError(f"there is no {TEST}: this checkout lacks the test that `./dev asan` runs.")
    libraries = runtime_libraries()
    bootstrap.prepare(environment, "test")
    folder = layout.root / "build" / f"asan-{environment.kind}"
    target = folder / "packages"
    # The Python files count too: this install copies them.
    files = [path for path in (layout.core / "src").rglob("*.py") if path.is_file()]
    inputs = state.fingerprint(
        [build.inputs(environment), str(SETTINGS)], sorted(files), layout.root
    )
    remembered = state.State(folder / "state.json")
    if not remembered.is_done("asan", inputs):
        print("dev: compiling the core with AddressSanitizer: about 6 min on 2 cores", flush=True)
        _make_environment(environment, folder / "venv")
        _build(environment, target)
        remembered.record("asan", inputs, 0)
    env = environment.variables(
        PYTHONPATH=os.pathsep.join([str(target), *_inherited_path(environment)]),
        LD_PRELOAD=":".join(libraries),
        ASAN_OPTIONS=":".join([OPTIONS, *filter(None, [os.environ.get("ASAN_OPTIONS")])]),
    )
    command = [str(folder / "venv" / "bin" / "python"), "-m", "pytest"]
    command += ["-c", str(layout.root / "pyproject.toml"), "--rootdir", str(layout.root)]
    # Uncaptured: a report that ends the process would be lost with pytest's buffers.
    command += ["--capture=no", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments, TEST]
    print("$ " + shlex.join(command), flush=True)
    return process.run(command, env=env, cwd=layout.root)


def _inherited_path(environment: Environment) -> list[str]:
    path = environment.variables().get("PYTHONPATH")
    return [path] if path else []
