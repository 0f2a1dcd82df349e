"""Owns: the worker process, which evaluates what it is told to, and may crash.

Its side of the conversation: a `Ready` first, then one `UnitResult` for each
(suite, entry, pass) received, until the connection closes. Where it is at any moment stands in
shared memory, which outlives it.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Final

from .configurations import CONFIGURATIONS, PLAIN
from .results import UnitResult

if TYPE_CHECKING:
    from .cases import Tier

POSITION_BYTES: Final = 200


@dataclass(frozen=True)
class Setup:
    """What a worker needs to know before its first unit.

    ``variables`` are set for its process, besides those of the configuration. With ``wrong`` each
    suite's operators are wrong on the device, and only what fails by that counts as failed.
    """

    device: str
    seed: int
    tier: Tier
    suites: tuple[str, ...]
    configuration: str = PLAIN
    variables: Mapping[str, str] = field(default_factory=dict)
    wrong: bool = False
    fingerprints: bool = False


@dataclass(frozen=True)
class Ready:
    """What a worker says once the databases are imported and the device answers."""

    device: str
    devices: int
    torch: str
    plugin: str
    plugin_version: str
    entries: Mapping[str, tuple[str, ...]]
    """all entries of each suite"""
    device_name: str = ""
    """the accelerator's own name, if it has one"""


def serve(connection: Connection, position: Any, setup: Setup, log: str) -> None:
    """Run in a fresh process: answer units until the other side closes.

    Args:
        connection: receives (suite, entry, pass name), sends `Ready` and `UnitResult`.
        position: a shared array of `POSITION_BYTES` characters.
        setup: what to evaluate on and how much.
        log: the file that takes everything printed, native crash reports included.
    """
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    faulthandler.enable()
    warnings.simplefilter("ignore")  # the samples provoke many of PyTorch's warnings

    def set_position(text: str) -> None:
        position.value = text.encode()[: POSITION_BYTES - 1]

    set_position("starting")
    units = _Units(setup, set_position)
    connection.send(units.ready)
    set_position("idle")
    while True:
        try:
            suite, entry, pass_name = connection.recv()
        except EOFError:
            return
        connection.send(units.evaluate(suite, entry, pass_name))


def serve_natively(connection: Connection, position: Any, setup: bytes, log: str) -> None:
    """`serve` in a process without flagos; `setup` is pickled. Called by torch_fl_entry."""
    import torch

    # Its results would be flagos' own, and nothing else would show it.
    assert torch._C._get_privateuse1_backend_name() != "flagos", "flagos is active in this process"
    serve(connection, position, pickle.loads(setup), log)


class _Units:
    """The databases and the device, and what is evaluated with them."""

    def __init__(self, setup: Setup, set_position: Any) -> None:
        # Imported here and not above: the process that starts the workers needs neither.
        import torch

        from ..suites import SUITES
        from .evaluate import Evaluator
        from .wrong import Wrong

        # One thread: the workers share the cores, and a sum's order must not vary.
        torch.set_num_threads(1)
        configuration = CONFIGURATIONS[setup.configuration]
        device = torch.empty(0, device=configuration.device(setup.device)).device
        self._tier = setup.tier
        self._suites = {suite: SUITES[suite] for suite in setup.suites}
        self._entries = {name: suite.load() for name, suite in self._suites.items()}
        plugin, version, own_texts = _backend(device)

        def evaluator(**more: Any) -> Evaluator:
            how = {
                "own_texts": own_texts,
                "copies": configuration.copies,
                "fingerprints": setup.fingerprints,
                **more,
            }
            return Evaluator(device, setup.seed, set_position, **how)

        self._evaluator = evaluator()
        self._wrong: dict[str, Evaluator] = {}
        if setup.wrong:
            for suite in self._suites.values():
                wrong = Wrong(device.type, suite.wrong)
                self._wrong[suite.name] = evaluator(during_device_call=wrong.during)
        count = 1 if device.type == "cpu" else torch.get_device_module(device).device_count()
        entries = {name: tuple(found) for name, found in self._entries.items()}
        name = _name_of(device)
        self.ready = Ready(str(device), count, torch.__version__, plugin, version, entries, name)

    def evaluate(self, suite: str, entry: str, pass_name: str) -> UnitResult:
        """One unit. With wrong operators, only failures that the right ones do not show count."""
        pass_ = self._suites[suite].pass_named(pass_name)
        info, limit = self._entries[suite][entry], pass_.limit(self._tier)
        if suite not in self._wrong:
            return self._evaluator.evaluate(entry, info, pass_, limit)
        unit = self._wrong[suite].evaluate(entry, info, pass_, limit)
        if unit.failed:
            right = self._evaluator.evaluate(entry, info, pass_, limit)
            unit.failed = max(0, unit.failed - right.failed)
        return unit


def _name_of(device: Any) -> str:
    import torch

    module = None if device.type == "cpu" else torch.get_device_module(device)
    named = getattr(module, "get_device_name", None)  # not every backend of PyTorch has it
    return str(named(device)) if named is not None else ""


def _backend(device: Any) -> tuple[str, str, bool]:
    """The plugin's name and version, and whether the errors' texts are its target's own."""
    if device.type != "flagos":
        return device.type, "", device.type != "cpu"
    import torch_fl
    from torch_fl.plugins import selection

    chosen = selection.current()
    assert chosen.plugin is not None, "the device answers"
    version = chosen.plugin.version or torch_fl.__version__
    return chosen.plugin.name, version, chosen.target != "cpu"
