"""Owns: `torch-fl info`: what a bug report needs. Each part is told even where another fails."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_fl.cli.tables import Page
    from torch_fl.plugins.selection import Selection


@dataclass(frozen=True)
class Info:
    """What is known of this process's flagos. Parts are empty where `error` kept them from it."""

    versions: dict[str, str]
    plugin: dict[str, Any]
    environment: dict[str, str]
    """What the plugin says of its SDK, driver and so on."""
    devices: list[dict[str, Any]]
    routes: dict[str, int]
    """How many operators take each route."""
    layers: list[dict[str, Any]]
    settings: dict[str, str]
    misspelt: dict[str, str | None]
    """FLAGOS_* variables that nobody reads, and the nearest name that exists."""
    fallbacks: list[dict[str, Any]]
    """Operators that ran on the CPU fallback in this process, so far."""
    error: str | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `torch-fl info`."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print what is known: 0, or 1 where flagos cannot be used and most is not."""
    from torch_fl.cli import tables

    with tables.others_on_stderr():
        info = collect()
    if arguments.json:
        tables.print_json(asdict(info))
    else:
        _print(info, tables.Page())
    return 1 if info.error else 0


def collect() -> Info:
    """What is known of the calling process. Activates flagos, and raises nothing for what fails."""
    from torch_fl import settings
    from torch_fl.cli import variables
    from torch_fl.plugins import selection

    chosen = selection.current()
    error: str | None = None
    devices: list[dict[str, Any]] = []
    try:
        _activate()
        chosen = selection.current()  # starting the plugin's runtime may have failed
        devices = _devices()
        error = chosen.error
    except Exception as raised:
        error = str(raised)
    active = hasattr(sys.modules.get("torch"), "flagos")
    environment, problem = _environment(chosen)
    return Info(
        versions=_versions(),
        plugin=_plugin(chosen),
        environment=environment,
        devices=devices,
        routes=_routes() if active else {},
        layers=_layers() if active else [],
        settings=variables.given(),
        misspelt=settings.undeclared(),
        fallbacks=_fallbacks() if active else [],
        error=error or problem,
    )


def _activate() -> None:
    from torch_fl.cli.device import activate

    activate()


def _versions() -> dict[str, str]:
    import torch_fl

    versions = {
        "torch-fl-core": torch_fl.__version__,
        "torch": _torch(),
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "platform": platform.platform(),
        "executable": sys.executable,
    }
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "version"):
        versions["torch is in"] = os.path.dirname(torch.__file__)
        # The accelerators that a build of PyTorch has are the names in torch.version.
        plain = {"debug", "git_version"}
        for name, version in sorted(vars(torch.version).items()):
            if isinstance(version, str) and not name.startswith("_") and name not in plain:
                versions[f"torch was built for {name}"] = version
    return versions


def _torch() -> str:
    try:
        import torch

        return str(torch.__version__)
    except Exception as error:
        return f"cannot be imported: {error}"


def _plugin(chosen: Selection) -> dict[str, Any]:
    from torch_fl.plugins.spec import AbiRuntime, DelegateRuntime, HostRuntime

    runtime, kind, target = chosen.runtime, None, None
    if isinstance(runtime, HostRuntime):
        kind, target = "host", "cpu"
    elif isinstance(runtime, DelegateRuntime):
        kind, target = "delegate", runtime.device_type
    elif isinstance(runtime, AbiRuntime):
        kind, target = "abi", runtime.library
    plugin = chosen.plugin
    return {
        "name": plugin and plugin.name,
        "title": plugin and plugin.identity.title,
        "distribution": plugin and plugin.distribution,
        "version": plugin and plugin.version,
        "why": chosen.why,
        "runtime": kind,
        "target": target,
        "installed": {record.name: record.stage for record in chosen.records},
    }


def _environment(chosen: Selection) -> tuple[dict[str, str], str | None]:
    if chosen.plugin is None:
        return {}, None
    try:
        return chosen.plugin.environment(), None
    except Exception as error:
        return {}, str(error)


def _devices() -> list[dict[str, Any]]:
    from torch_fl import flagos

    found = []
    for index in range(flagos.device_count()):
        free, total = flagos.mem_get_info(index)
        properties = asdict(flagos.get_device_properties(index))
        found.append({"index": index, **properties, "free_memory": free, "total_memory": total})
    return found


def _routes() -> dict[str, int]:
    from torch_fl.cli import routes

    return routes.counts(routes.rows())


def _layers() -> list[dict[str, Any]]:
    from torch_fl.cli import routes

    return routes.layers()


def _fallbacks() -> list[dict[str, Any]]:
    from torch_fl import routing

    return [asdict(row) for row in routing.fallbacks()]


def _print(info: Info, page: Page) -> None:
    from torch_fl.cli.tables import size

    page.heading("versions")
    page.facts(info.versions.items())
    page.heading("plugin")
    installed = ", ".join(f"{k} ({v})" for k, v in info.plugin["installed"].items())
    page.facts(
        (name, installed if name == "installed" else value)
        for name, value in info.plugin.items()
        if value
    )
    if info.error:
        page.heading("error")
        page.text(info.error)
    if info.environment:
        page.heading("what the plugin says")
        page.facts(info.environment.items())
    if info.devices:
        page.heading("devices")
        page.table(
            ("device", "name", "memory", "free", "units", "capability"),
            [
                (
                    f"flagos:{one['index']}",
                    one["name"],
                    size(one["total_memory"]),
                    size(one["free_memory"]),
                    one["multi_processor_count"],
                    f"{one['major']}.{one['minor']}",
                )
                for one in info.devices
            ],
        )
    _print_routes(info, page)
    page.heading("settings")
    page.facts(info.settings.items() or [("none", "no FLAGOS_* variable is set")])
    if info.misspelt:
        page.heading("variables without effect")
        page.facts(
            (name, f"no such setting{f'; did you mean {near}?' if near else ''}")
            for name, near in info.misspelt.items()
        )


def _print_routes(info: Info, page: Page) -> None:
    if info.routes:
        page.heading("operators by route")
        page.facts(info.routes.items())
    if info.layers:
        page.heading("layers of routes, later ones win")
        page.facts(
            (one["layer"], f"{one['lines']} lines from {', '.join(one['files'])}")
            for one in info.layers
        )
    if info.fallbacks:
        page.heading("CPU fallbacks")
        page.facts((one["operator"], f"{one['calls']} calls") for one in info.fallbacks)
