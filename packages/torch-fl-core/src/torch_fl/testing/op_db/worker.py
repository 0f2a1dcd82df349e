"""Owns: the worker process, which evaluates what it is told to, and may crash.

Its side of the conversation: a `Ready` first, then one `UnitResult` for each
(operator, pass) received, until the connection closes. Where it is at any moment stands in
shared memory, which outlives it.
"""

from __future__ import annotations

import faulthandler
import os
import warnings
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

from .results import UnitResult
from .tiers import Limits

POSITION_BYTES: Final = 200


@dataclass(frozen=True)
class Setup:
    """What a worker needs to know before its first unit."""

    device: str
    seed: int
    limits: Limits
    wrong_add: bool = False


@dataclass(frozen=True)
class Ready:
    """What a worker says once the operator database is imported and the device answers."""

    device: str
    torch: str
    entries: tuple[str, ...]


def serve(connection: Connection, position: Any, setup: Setup, log: str) -> None:
    """Run in a fresh process: answer units until the other side closes.

    Args:
        connection: receives (operator, pass name), sends `Ready` and `UnitResult`.
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
            op, pass_name = connection.recv()
        except EOFError:
            return
        connection.send(units.evaluate(op, pass_name))


class _Units:
    """The operator database and the device, and what is evaluated with them."""

    def __init__(self, setup: Setup, set_position: Any) -> None:
        # Imported here and not above: the process that starts the workers needs neither.
        import torch
        from torch.testing._internal.common_methods_invocations import op_db

        from .evaluate import Evaluator
        from .passes import PASSES
        from .wrong_add import WrongAdd

        # One thread: the workers share the cores, and a sum's order must not vary.
        torch.set_num_threads(1)
        device = torch.empty(0, device=setup.device).device
        self._limits = setup.limits
        self._passes = PASSES
        self._entries = {op.full_name: op for op in op_db}
        wrong = WrongAdd(device.type) if setup.wrong_add else None
        self._evaluator = Evaluator(
            device,
            setup.seed,
            position=set_position,
            **({"during_device_call": wrong.during} if wrong else {}),
        )
        self._right = Evaluator(device, setup.seed, position=set_position) if wrong else None
        self.ready = Ready(str(device), torch.__version__, tuple(self._entries))

    def evaluate(self, op: str, pass_name: str) -> UnitResult:
        """One unit. With the wrong add, only failures that the right add does not show count."""
        pass_, limit = self._passes[pass_name], self._limits[pass_name]
        unit = self._evaluator.evaluate(self._entries[op], pass_, limit)
        if self._right is not None and unit.failed:
            right = self._right.evaluate(self._entries[op], pass_, limit)
            unit.failed = max(0, unit.failed - right.failed)
        return unit
