"""Owns: which plugin this process uses, and what went wrong with it.

Nothing here raises but for KeyboardInterrupt: `import torch` must survive every plugin. What is
wrong stands in the selection, and the device's first use raises it.
"""

from __future__ import annotations

import logging
import threading
import traceback
from dataclasses import dataclass, replace
from pathlib import Path

from torch_fl import settings
from torch_fl.plugins import choosing, discovery, refusals
from torch_fl.plugins.loaded import LoadedPlugin
from torch_fl.plugins.machine import Machine
from torch_fl.plugins.records import Record
from torch_fl.plugins.spec import AbiRuntime, DelegateRuntime, HostRuntime, Runtime

_log = logging.getLogger("torch_fl.plugins")
_lock = threading.RLock()
_current: Selection | None = None


@dataclass(frozen=True)
class Selection:
    """The backend of a process, or why it has none.

    `plugin` and `runtime` are there, or `error` says what is wrong and what to do; a `plugin`
    beside an error was chosen and could not be started. `why` is one sentence on the choice.
    `records` has every plugin that is installed, `notes` sentences on settings without effect.
    """

    plugin: LoadedPlugin | None
    runtime: Runtime | None
    error: str | None
    why: str
    records: tuple[Record, ...]
    notes: tuple[str, ...] = ()

    @property
    def target(self) -> str | None:
        """The type of device that flagos' tensors are relabelled to; None without such a one."""
        match self.runtime:
            case HostRuntime():
                return "cpu"
            case DelegateRuntime(device_type):
                return device_type
        return None


def select() -> Selection:
    """Looks at what is installed, at the machine and at the settings, anew; `current` keeps it.

    FLAGOS_PLUGIN names the plugin: then no other is imported, unless that one cannot be used, and
    whether its hardware was found does not matter. Otherwise the plugin is the one that fits the
    machine (`rules` says how), else the host.
    """
    global _current
    with _lock:
        machine = Machine.here()
        installed = discovery.discover()
        wanted = settings.FLAGOS_PLUGIN.read()
        if wanted:
            choice = choosing.by_name(wanted, installed, machine)
        else:
            choice = choosing.by_hardware(installed, machine)
        notes = (*installed.notes, *machine.notes())
        found = Selection(choice.plugin, None, choice.error, choice.why, choice.records, notes)
        _report(found, named=bool(wanted))
        _current = _started(found)
        return _current


def current() -> Selection:
    """This process's selection; the first call makes it."""
    with _lock:
        return _current or select()


def failed(error: BaseException | str) -> Selection:
    """Tells that the chosen plugin could not be started; that is this process's selection then.

    An error that is there already stays: it came first.
    """
    global _current
    with _lock:
        selection = current()
        _current = selection if selection.error else _not_started(selection, error)
        return _current


def _started(selection: Selection) -> Selection:
    if selection.plugin is None:
        return selection
    try:
        runtime = selection.plugin.runtime()
        if isinstance(runtime, AbiRuntime) and not Path(runtime.library).is_file():
            raise ValueError(refusals.no_library(runtime.library, selection.plugin))
    except Exception as error:
        return _not_started(selection, error)
    return replace(selection, runtime=runtime)


def _not_started(selection: Selection, error: BaseException | str) -> Selection:
    plugin = selection.plugin
    assert plugin is not None, "there is a plugin or an error"
    said = refusals.starting(plugin, error)
    text = None if isinstance(error, str) else "".join(traceback.format_exception(error))
    records = tuple(
        replace(record, stage="runtime", why=refusals.WHY["runtime"], error=said, traceback=text)
        if record.stage == "chosen"
        else record
        for record in selection.records
    )
    return replace(selection, runtime=None, error=said, records=records)


def _report(selection: Selection, *, named: bool) -> None:
    """Into the log: the choice, and what is broken, lest a process ends up on the host in silence.

    Where FLAGOS_PLUGIN names a plugin, what is wrong with others does not matter.
    """
    for note in selection.notes:
        _log.warning("%s", note)
    for record in selection.records:
        if record.error and not named:
            _log.warning("The plugin %r is not used: %s", record.name, record.error)
        _log.info("%s (%s): %s", record.name, record.stage, record.why)
