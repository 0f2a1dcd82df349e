"""Owns: one plugin imported, and asked who it is and whether its hardware is here.

Whatever it does wrong ends in its record, and nowhere else.
"""

from __future__ import annotations

import time
import traceback
from dataclasses import replace
from typing import NamedTuple, NoReturn

from torch_fl.plugins import hooks, refusals, time_limit
from torch_fl.plugins.discovery import Candidate
from torch_fl.plugins.hooks import Hooks, PluginError
from torch_fl.plugins.loaded import LoadedPlugin
from torch_fl.plugins.machine import Machine
from torch_fl.plugins.records import Record, Stage
from torch_fl.plugins.spec import API_VERSION, Detection, Identity

DETECT_SECONDS = 1.0


class Probed(NamedTuple):
    """A plugin's record, and the plugin itself if it can be used.

    A plugin that could not look for its hardware can be: a user may know better and name it.
    """

    record: Record
    plugin: LoadedPlugin | None = None

    @property
    def found(self) -> bool:
        """Whether it says that its hardware is here."""
        detection = self.record.detection
        return self.plugin is not None and detection is not None and detection.found


def probe(candidate: Candidate, machine: Machine) -> Probed:
    """Imports a plugin and asks it. Raises nothing but KeyboardInterrupt."""
    start = time.perf_counter()
    work = _Probe(candidate)
    try:
        work.load()
        work.look(machine)
    except _Stopped:
        pass  # it is in the record
    record = replace(work.record, ms=(time.perf_counter() - start) * 1e3)
    return Probed(record, work.plugin)


class _Stopped(Exception):
    """The plugin can go no further."""


class _Probe:
    """A plugin on its way: `record` and `plugin` say how far it came."""

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.record = candidate.record()
        self.plugin: LoadedPlugin | None = None

    def load(self) -> None:
        """As far as a plugin that can be used, whatever the hardware."""
        candidate = self.candidate
        try:
            module = candidate.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too
            self._stop("import", refusals.importing(candidate, error), error)
        if candidate.is_half_imported():
            self._stop("import", refusals.half_imported(candidate))
        try:
            attached, warnings = hooks.attach(str(candidate), module)
        except Exception as error:
            self._stop("hooks", refusals.no_hooks(candidate, error), error)
        self.record = replace(self.record, warnings=warnings)
        identity = self._identity(attached)
        self.record = replace(self.record, title=identity.title)
        if refusal := refusals.api_version(candidate, identity, API_VERSION):
            self._stop("api", refusal)
        if not attached.has("torch_fl_runtime"):
            self._stop("hooks", refusals.lacks(candidate, "torch_fl_runtime", warnings))
        self.plugin = LoadedPlugin(
            candidate.name, candidate.distribution, candidate.version, identity, None, attached
        )

    def look(self, machine: Machine) -> None:
        """Whether its hardware is here."""
        assert self.plugin is not None
        attached, hook = self.plugin.hooks, "torch_fl_detect"
        self.record = replace(self.record, stage="detect", why=refusals.DOES_NOT_LOOK)
        try:
            detection = time_limit.call(
                lambda: attached.call(hook, Detection, machine=machine), DETECT_SECONDS
            )
        except time_limit.TimeLimitError as error:
            self._stop("detect", refusals.hangs(self.candidate, DETECT_SECONDS, error.where))
        except PluginError as error:
            self._stop("detect", refusals.detecting(self.candidate, error), error)
        if detection is None:
            return
        self.plugin = replace(self.plugin, detection=detection)
        why = refusals.found(detection) if detection.found else refusals.not_found(detection)
        self.record = replace(self.record, detection=detection, why=why)

    def _identity(self, attached: Hooks) -> Identity:
        hook = "torch_fl_identity"
        try:
            identity = attached.call(hook, Identity)
        except PluginError as error:
            self._stop("identity", refusals.identifying(self.candidate, error), error)
        if identity is None:
            self._stop("hooks", refusals.lacks(self.candidate, hook, self.record.warnings))
        if identity.name != self.candidate.name:
            self._stop("identity", refusals.other_name(self.candidate, identity))
        return identity

    def _stop(self, stage: Stage, error: str, cause: BaseException | None = None) -> NoReturn:
        text = None if cause is None else "".join(traceback.format_exception(cause))
        why = refusals.WHY[stage]
        self.record = replace(self.record, stage=stage, why=why, error=error, traceback=text)
        raise _Stopped from cause
