"""Owns: `./dev lint`: style, types and static analysis, in parts that can be run alone."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ci.dev import bootstrap, machine, process, state
from ci.dev.errors import UserError
from ci.dev.layout import Environment

CPP_SUFFIXES = (".h", ".hpp", ".c", ".cc", ".cpp")
TIDY_ARGUMENTS = (
    "--quiet",
    "--warnings-as-errors=*",
    "--extra-arg=-Wno-unknown-warning-option",
    "--extra-arg=-Wno-ignored-gch",  # g++'s precompiled headers; clang reads the headers themselves
)


@dataclass(frozen=True)
class Part:
    """One check. `level` is what has to be prepared for it (`bootstrap.LEVELS`)."""

    name: str
    about: str
    level: str
    check: Callable[[Environment, bool], int]


def _run(environment: Environment, command: Sequence[str | Path]) -> int:
    line = [str(word) for word in command]
    most = 8
    shown = shlex.join(line[:most]) + (f" ... ({len(line)} words)" if len(line) > most else "")
    print(f"$ {shown}", flush=True)
    return process.run(line, env=environment.variables(), cwd=environment.layout.root)


def _ruff(environment: Environment, fix: bool) -> int:
    return _run(environment, [environment.script("ruff"), "check", *(["--fix"] if fix else [])])


def _ruff_format(environment: Environment, fix: bool) -> int:
    check = [] if fix else ["--check", "--diff"]
    return _run(environment, [environment.script("ruff"), "format", *check])


def _mypy(environment: Environment, fix: bool) -> int:
    root = environment.layout.root
    sources = sorted(path.relative_to(root) for path in root.glob("packages/*/src"))
    return _run(environment, [environment.python, "-m", "mypy", "dev", "ci/dev", *sources])


def cpp_files(root: Path) -> list[Path]:
    """Our C and C++ files, relative to the repository."""
    return sorted(
        path.relative_to(root)
        for folder in ("csrc", "include")
        for path in root.glob(f"packages/*/{folder}/**/*")
        if path.suffix in CPP_SUFFIXES and path.is_file()
    )


def _clang_format(environment: Environment, fix: bool) -> int:
    files = cpp_files(environment.layout.root)
    if not files:
        print("no C++ files")
        return 0
    how = ["-i"] if fix else ["--dry-run", "--Werror"]
    return _run(environment, [environment.script("clang-format"), *how, *files])


def compile_commands(environment: Environment) -> Path:
    """The newest compilation database of the environment's own build of the core."""
    build = environment.layout.core / "build"
    others = ("installed-", "current-", "asan-")
    found = [
        path
        for path in build.glob("*/compile_commands.json")
        if path.parent.name.startswith(environment.kind + "-")
        or (environment.kind == "pinned" and not path.parent.name.startswith(others))
    ]
    if not found:
        raise UserError(
            f"clang-tidy needs the build's compile_commands.json and there is none under {build}. "
            "Delete that folder and run `./dev lint` again: the core is then built anew."
        )
    return max(found, key=lambda path: path.stat().st_mtime)


def _clang_tidy(environment: Environment, fix: bool) -> int:
    root, database = environment.layout.root, compile_commands(environment)
    headers = [root / path for path in cpp_files(root) if path.suffix in (".h", ".hpp")]
    passed = state.State(environment.layout.work / "clang-tidy.json")
    due: list[tuple[Path, str]] = []
    for entry in json.loads(database.read_text(encoding="utf-8")):
        path = Path(entry["directory"], entry["file"]).resolve()
        if not path.is_relative_to(root / "packages") or "csrc" not in path.parts:
            continue  # generated or torch's
        line = entry.get("command") or shlex.join(entry["arguments"])
        files = [path, root / ".clang-tidy", environment.layout.lint_constraints, *headers]
        inputs = state.fingerprint([line, *TIDY_ARGUMENTS], files)
        if fix or not passed.is_done(str(path), inputs):
            due.append((path, inputs))
    command = [str(environment.script("clang-tidy")), "-p", str(database.parent), *TIDY_ARGUMENTS]
    print(f"$ {shlex.join(command)} ... ({len(due)} files that changed)", flush=True)
    if fix:
        command.append("--fix")

    def check(item: tuple[Path, str]) -> tuple[int, str, float]:
        start = time.monotonic()
        done = subprocess.run(
            [*command, str(item[0])],
            env=environment.variables(),
            cwd=root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        said = done.stdout if done.returncode == 0 else done.stdout + done.stderr
        return done.returncode, said, time.monotonic() - start

    worst = 0
    # Two that fix the same header at once would both write it.
    with ThreadPoolExecutor(1 if fix else machine.build_jobs()) as pool:
        for (path, inputs), (status, said, seconds) in zip(due, pool.map(check, due), strict=True):
            name = os.path.relpath(path, root)
            print(f"  {name}: {'ok' if status == 0 else 'failed'} ({seconds:.0f} s)", flush=True)
            if status == 0:
                passed.record(str(path), inputs, seconds)
            else:
                print(said, flush=True)
            worst = max(worst, abs(status))
    return worst


PARTS = (
    Part("ruff", "Python: mistakes and idioms", "lint", _ruff),
    Part("ruff-format", "Python: layout", "lint", _ruff_format),
    Part("clang-format", "C++: layout", "lint", _clang_format),
    Part("mypy", "Python: types, strict", "types", _mypy),
    Part("clang-tidy", "C++: mistakes, idioms and names", "tidy", _clang_tidy),
)


def main(environment: Environment, names: Iterable[str], fix: bool) -> int:
    known = {part.name: part for part in PARTS}
    names = list(names)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UserError(
            f"there is no part {', '.join(unknown)}. The parts are: {', '.join(known)}."
        )
    chosen = [part for part in PARTS if not names or part.name in names]
    statuses: dict[str, int] = {}
    for part in chosen:
        # The quick parts do not wait for torch and a build that only the last ones need.
        bootstrap.prepare(environment, part.level)
        print(f"== {part.name}: {part.about} ==", flush=True)
        statuses[part.name] = part.check(environment, fix)
    failed = [name for name, status in statuses.items() if status]
    if not failed:
        print(f"lint: {len(statuses)} parts passed")
        return 0
    print(f"lint: {', '.join(failed)} failed of {len(statuses)} parts")
    flags = " ".join([*environment.flags, "--part", *failed])
    print(f"dev: to run it again: ./dev lint {flags} (with --fix what can be is mended)")
    return 1
