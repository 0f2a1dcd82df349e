"""Owns: `torch-fl doctor`: everything that can be wrong, looked at from outside.

This process imports neither torch nor a plugin: what may crash or hang is checked in child
processes, see `child` and `probes`.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from torch_fl.cli import child, tables, variables
from torch_fl.cli.findings import Finding
from torch_fl.cli.tables import Page

OLDEST_PYTHON = (3, 10)
TIME_LIMIT_S = 60.0

_AFTER_PLUGINS = ("activation", "routes", "device")


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be above 0, but got {text}")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `torch-fl doctor`."""
    parser.add_argument(
        "--time-limit",
        type=_seconds,
        default=TIME_LIMIT_S,
        metavar="SECONDS",
        help=f"for each check that runs in a process of its own (default: {TIME_LIMIT_S:g})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Check everything and print it: 0 when all is well, 1 when something is wrong."""
    found = []
    say = tables.waiting()
    try:
        for finding in examine(arguments.time_limit):
            found.append(finding)
            say(f"{finding.check}: {finding.state} ...")
    finally:
        say("")
    failed = sum(finding.state == "FAILED" for finding in found)
    if arguments.json:
        findings = [asdict(finding) for finding in found]
        tables.print_json({"ok": not failed, "findings": findings})
    else:
        _print(found, failed, tables.Page())
    return 1 if failed else 0


def examine(time_limit: float = TIME_LIMIT_S) -> Iterator[Finding]:
    """Everything that was found, as it is found.

    Args:
        time_limit: seconds for each check that runs in a child process.
    """
    yield _python()
    yield _installation()
    yield from _settings()
    yield from _library_paths()
    crashed = False
    for finding in _plugins(time_limit):
        crashed |= finding.check == "selection" and finding.state == "not tried"
        yield finding
    yield from _torch(time_limit, plugins_crashed=crashed)


# -- in this process


def _python() -> Finding:
    said = f"{platform.python_version()}, {sys.executable}"
    if sys.version_info < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return Finding("python", "FAILED", said, f"torch-fl needs Python {oldest} or newer.")
    return Finding("python", "ok", said)


def _installation() -> Finding:
    import importlib.metadata

    import torch_fl

    place = f"{torch_fl.__version__} in {Path(torch_fl.__file__).parent}"
    reinstall = "Uninstall torch-fl-core until pip finds none, then install it again."
    try:
        said = importlib.metadata.version("torch-fl-core")
    except importlib.metadata.PackageNotFoundError:
        return Finding(
            "torch-fl-core", "warning", f"{place}, not installed as a package", reinstall
        )
    if said != torch_fl.__version__:
        text = f"{place}, but its metadata says {said}: two versions are mixed"
        return Finding("torch-fl-core", "FAILED", text, reinstall)
    return Finding("torch-fl-core", "ok", place)


def _settings() -> Iterator[Finding]:
    from torch_fl import settings

    wrong = False
    for setting in settings.SETTINGS:
        try:
            setting.read()
        except ValueError as error:
            wrong = True
            yield Finding(setting.name, "FAILED", str(error), "Correct it, or unset it.")
    for name, near in settings.undeclared().items():
        wrong = True
        meant = f"Did you mean {near}?" if near else "Unset it."
        yield Finding(name, "FAILED", "no such setting: it has no effect", meant)
    if not wrong:
        said = ", ".join(variables.given())
        yield Finding("settings", "ok", said or "no FLAGOS_* variable is set")


def _library_paths() -> Iterator[Finding]:
    """What could bring another torch, or another torch's libraries."""
    wrong = False
    for variable, patterns in (
        ("LD_LIBRARY_PATH", ("libc10*.so*", "libtorch*.so*")),
        ("PYTHONPATH", ("torch/__init__.py", "torch.py", "torch_fl/__init__.py")),
    ):
        for folder in filter(None, os.environ.get(variable, "").split(os.pathsep)):
            paths = [path for pattern in patterns for path in Path(folder).glob(pattern)]
            found = [str(path.relative_to(folder)) for path in paths]
            if found:
                wrong = True
                said = f"{folder} has {_some(sorted(found))}, before what is installed"
                advice = f"If that is not on purpose, take it out of {variable}."
                yield Finding(variable, "warning", said, advice)
    for library in os.environ.get("LD_PRELOAD", "").replace(":", " ").split():
        wrong = True
        said = f"{library} is loaded into every process"
        if "/" in library and not Path(library).exists():
            said = f"{library} does not exist"
        yield Finding("LD_PRELOAD", "warning", said, "If that is not on purpose, unset it.")
    if not wrong:
        yield Finding("library paths", "ok", "nothing stands before what is installed")


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


# -- in child processes


def _plugins(time_limit: float) -> Iterator[Finding]:
    """All plugins in one process; where that one dies, each in its own, to see who did it."""
    together = child.run(["plugins"], time_limit)
    if not together.crashed:
        yield from together.findings
        return
    from torch_fl.plugins import discovery

    installed = discovery.discover()
    for candidate in installed.candidates:
        name = f"plugin {candidate.name}"
        alone = child.run(
            ["plugins"],
            time_limit,
            env={"FLAGOS_PLUGINS_ALLOW": candidate.name, "FLAGOS_PLUGIN": None},
        )
        if not alone.crashed:
            yield from (finding for finding in alone.findings if finding.check == name)
            continue
        advice = (
            f"Reinstall {candidate.distribution}, or tell its makers. "
            f"FLAGOS_DISABLE_PLUGINS={candidate.name} leaves it out."
        )
        last = alone.findings[-1]
        yield Finding(name, "FAILED", f"asking it: {last.said}", advice, last.output)
    yield _not_tried("selection", "a plugin ends the process")


def _torch(time_limit: float, *, plugins_crashed: bool) -> Iterator[Finding]:
    names = ["torch", "binary", *(() if plugins_crashed else _AFTER_PLUGINS)]
    # Without other backends from outside, so that torch itself is looked at.
    chain = child.run(names, time_limit, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    yield from chain.findings
    done = {finding.check for finding in chain.findings}
    broken = next((each.check for each in chain.findings if each.state == "FAILED"), "")
    for name in ("torch", "binary", *_AFTER_PLUGINS):
        if name not in done:
            yield _not_tried(name, f"{broken} failed" if broken else "a plugin ends the process")
    if broken == "torch" or plugins_crashed:
        reason = "torch failed" if broken == "torch" else "a plugin ends the process"
        yield _not_tried("import torch", reason)
        return
    yield from child.run(["import torch"], time_limit, first="import torch").findings


def _not_tried(check: str, why: str) -> Finding:
    return Finding(check, "not tried", why)


# -- on paper


def _print(found: list[Finding], failed: int, page: Page) -> None:
    page.table(("check", "state", "what"), [(each.check, each.state, each.line) for each in found])
    for finding in found:
        if finding.advice or finding.output or finding.said != finding.line:
            page.heading(f"{finding.check}: {finding.state}")
            _print_details(finding, page)
    page.text("")
    if failed:
        page.text(f"{failed} of {len(found)} checks failed.", style="bold red")
    else:
        page.text("All is well." if not _warns(found) else "Nothing failed.", style="bold green")


def _print_details(finding: Finding, page: Page) -> None:
    for line in finding.said.splitlines():
        page.text(f"  {line}")
    if finding.advice:
        page.text(f"  To do: {finding.advice}")
    for line in finding.output.splitlines():
        page.text(f"  | {line}")


def _warns(found: list[Finding]) -> bool:
    return any(finding.state == "warning" for finding in found)
