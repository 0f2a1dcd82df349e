"""Owns: worker processes for the tests of crash isolation; they import no database.

A unit's entry says what the worker does with it. In a module of its own because a fresh
process has to import it.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from torch_fl.testing.harness.results import UnitResult
from torch_fl.testing.harness.worker import Ready, Setup

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

ENTRIES = ("good", "abort", "exit", "hang", "lose")


def serve(connection: Connection, position: Any, setup: Setup, log: str) -> None:
    """Answer, or die in the way that the entry says."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 2)
    plugin = os.environ.get("FLAGOS_PLUGIN", "none")
    connection.send(Ready(setup.device, 1, "2.0", plugin, "", {"fake": ENTRIES}))
    while True:
        try:
            _, op, pass_name = connection.recv()
        except EOFError:
            return
        position.value = f"at {op}".encode()
        print(f"last words of {op}", file=sys.stderr, flush=True)
        if op == "abort":
            os.abort()
        if op == "exit":
            os._exit(3)
        if op == "hang":
            time.sleep(600)
        lost = op == "lose"
        connection.send(UnitResult(op, pass_name, passed=os.getpid(), device_lost=lost))


def serve_nothing(connection: Connection, position: Any, setup: Setup, log: str) -> None:
    """Die before being ready."""
    os._exit(7)
