"""Owns: the doctor's checks that may crash or hang; each runs in a child process.

Nothing is imported at the top that could break: it is then a finding of the check that needs it. A
check returns what it found, or raises; later checks of one process rely on earlier ones.
"""

from __future__ import annotations

import json
import os
import resource
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch_fl.cli.findings import Finding

ADVICE = {
    "torch": "flagos has no part in this: reinstall torch (pip install --force-reinstall torch), "
    "and see whether LD_LIBRARY_PATH, LD_PRELOAD or PYTHONPATH bring something in its place.",
    "binary": "Reinstall torch-fl-core for the torch that is installed.",
    "import torch": "A package that `import torch` loads by itself is broken: the traceback names "
    "it. TORCH_DEVICE_BACKEND_AUTOLOAD=0 leaves all of them out, FLAGOS_AUTOLOAD=0 flagos alone.",
    "plugins": "Reinstall what the traceback names: a plugin (FLAGOS_DISABLE_PLUGINS=<name> leaves "
    "it out), or a package that torch-fl-core needs.",
    "activation": "FLAGOS_PLUGIN=host uses none of the installed plugins.",
    "routes": "Correct the line. What a variable names can be unset; what a plugin brings is for "
    "its makers, and FLAGOS_PLUGIN=host works without it.",
    "device": "FLAGOS_PLUGIN=host works without any accelerator; if that is well, look at the "
    "plugin, its driver and its SDK.",
    "exit": "What was computed is right, but the process does not end well: tell the makers of the "
    "plugin, or of torch-fl-core.",
}
"""What to do where a check itself does not say it."""

_OWN_LIBRARY = "libtorch_fl.so"


def main(names: Sequence[str], report: int) -> None:
    """Make the checks of these names, and write their findings to a file descriptor, in JSON.

    Ends with the first check that fails.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is expected here
    for name in names:
        _write(report, {"begins": name})
        found = _made(name)
        _write(report, {"ends": name, "findings": [asdict(finding) for finding in found]})
        if any(finding.state == "FAILED" for finding in found):
            return


def _write(report: int, value: dict[str, object]) -> None:
    os.write(report, f"{json.dumps(value)}\n".encode())


def _made(name: str) -> list[Finding]:
    try:
        return CHECKS[name]()
    except Exception as error:
        said = str(error) or type(error).__name__
        if not isinstance(error, ImportError | RuntimeError | ValueError):
            said = f"{type(error).__name__}: {said}"
        return [Finding(name, "FAILED", said, ADVICE[name], traceback.format_exc().rstrip())]


# -- torch, and what was built for it


def torch_alone() -> list[Finding]:
    """Whether torch can be imported, without any backend from outside."""
    import torch

    said = f"{torch.__version__} in {os.path.dirname(torch.__file__)}"
    return [Finding("torch", "ok", said)]


def binary() -> list[Finding]:
    """Whether torch_fl's binary fits this torch, and where torch's libraries were loaded from."""
    from torch_fl._compat import torch_binary

    try:
        extension = torch_binary.load()
    except ImportError as error:
        return [Finding("binary", "FAILED", str(error))]
    return [Finding("binary", "ok", str(extension.__file__)), _libraries()]


def _libraries() -> Finding:
    import torch

    home = Path(torch.__file__).resolve().parent
    strange, names = [], set()
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = Path(line.partition("/")[1] + line.partition("/")[2])
        if path.name.startswith(("libtorch", "libc10")) and path.name != _OWN_LIBRARY:
            names.add(path.name)
            if home not in path.resolve().parents:
                strange.append(str(path))
    if not strange:
        return Finding("libraries", "ok", f"{len(names)} of torch, all from {home}")
    return Finding(
        "libraries",
        "FAILED",
        f"not from the installed torch: {', '.join(dict.fromkeys(strange))}",
        "Take the folders that hold them out of LD_LIBRARY_PATH and LD_PRELOAD.",
    )


def import_torch() -> list[Finding]:
    """What `import torch` did about flagos; it has been imported by now, as any program does it."""
    import torch

    import torch_fl_entry
    from torch_fl import settings

    check = "import torch"
    if error := torch_fl_entry.autoload_error:
        said = f"flagos was not activated by `import torch`: {type(error).__name__}: {error}"
        return [Finding(check, "FAILED", said, "See the other checks for the cause.")]
    if hasattr(torch, "flagos"):
        return [Finding(check, "ok", "it activates flagos")]
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        why = "TORCH_DEVICE_BACKEND_AUTOLOAD=0"
    elif settings.FLAGOS_AUTOLOAD.text() == "0":
        why = "FLAGOS_AUTOLOAD=0"
    else:
        why = "this torch has another accelerator, or flagos is not among its entry points"
    return [Finding(check, "ok", f"it does not activate flagos ({why}); `import torch_fl` does")]


# -- plugins


def plugins() -> list[Finding]:
    """Every plugin's record, and which one is used."""
    from torch_fl.plugins import selection

    chosen = selection.select()
    found = [_of(record) for record in chosen.records]
    found += [
        Finding("plugin settings", "FAILED", note, "Correct the variable, or unset it.")
        for note in chosen.notes
    ]
    if chosen.error:
        found.append(Finding("selection", "FAILED", chosen.error))
    else:
        found.append(Finding("selection", "ok", f"{chosen.plugin}: {chosen.why}"))
    return found


def _of(record: Any) -> Finding:
    check = f"plugin {record.name}"
    if record.error:
        return Finding(check, "FAILED", record.error, output=(record.traceback or "").rstrip())
    said = f"{record.stage}: {record.why}"
    if record.warnings:
        return Finding(check, "warning", "\n".join([said, *record.warnings]))
    return Finding(check, "ok", said)


# -- the device

_refused: ValueError | None = None  # what activation says of routes and switches


def activation() -> list[Finding]:
    """Whether the chosen plugin starts. Routes that are refused are the next check's business."""
    global _refused
    from torch_fl._activation import activate
    from torch_fl.plugins import selection

    try:
        activate()
    except ValueError as error:
        _refused = error
    chosen = selection.current()
    if chosen.error:
        return [Finding("activation", "FAILED", chosen.error)]
    return [Finding("activation", "ok", f"{chosen.runtime}")]


def routes() -> list[Finding]:
    """Whether everything that says something about routes can be understood."""
    if _refused is not None:
        return [Finding("routes", "FAILED", str(_refused), ADVICE["routes"])]
    from torch_fl.plugins import selection
    from torch_fl.routing.engine import ENGINE
    from torch_fl.routing.files import load

    plugin = selection.current().plugin
    brought = plugin.routes() if plugin else None
    if brought:
        for path in (brought.defaults, *brought.profiles.values()):
            if path is not None:
                load(path, words=ENGINE.words())
    profiles = f", {len(brought.profiles)} profiles" if brought and brought.profiles else ""
    layers = ENGINE.table().layers
    said = ", ".join(f"{layer.name} ({len(layer.entries)} lines)" for layer in layers)
    return [Finding("routes", "ok", (said or "every operator is on its own route") + profiles)]


def device() -> list[Finding]:
    """The device's first use: a tiny computation and its gradients, compared with the CPU's."""
    import torch

    from torch_fl import flagos, routing

    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(4, 4, generator=generator) for _ in range(2)]
    results = []
    for place in ("cpu", "flagos"):
        x, weight = (value.to(place).detach().requires_grad_() for value in values)
        loss = (x @ weight).relu().sum()
        gradients = torch.autograd.grad(loss, (x, weight))
        results.append([tensor.detach().cpu() for tensor in (loss, *gradients)])
    if not all(torch.allclose(a, b, rtol=1e-3, atol=1e-3) for a, b in zip(*results, strict=True)):
        said = f"it computes wrongly: {results[1][0].item()} instead of {results[0][0].item()}"
        return [Finding("device", "FAILED", said, ADVICE["device"])]
    count = flagos.device_count()
    said = f"{count} × {flagos.get_device_name(0)}, forward and backward agree with the CPU"
    fallen = [row.operator for row in routing.fallbacks()]
    if not fallen:
        return [Finding("device", "ok", said)]
    advice = "`torch-fl routes` shows what sends them to the CPU."
    said = f"{said}; ran on the CPU fallback: {', '.join(fallen)}"
    return [Finding("device", "warning", said, advice)]


CHECKS: dict[str, Callable[[], list[Finding]]] = {
    "torch": torch_alone,
    "binary": binary,
    "import torch": import_torch,
    "plugins": plugins,
    "activation": activation,
    "routes": routes,
    "device": device,
}
