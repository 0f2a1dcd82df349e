"""Owns: a row's two sides in one process, which take turns on the same parameters.

Two processes differ by what each happens to get, its processors and places in memory, which is more
than such a row's goal leaves. Here both sides have the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from _pair import Pair
from _sides import MEASURED, Child

CHILD = MEASURED / "_both_sides.py"


class OneProcess(Pair):
    """One new process with both sides; told and used as a pair of them is."""

    def _start(self, opened: contextlib.ExitStack, deadline: float) -> dict[str, dict[str, Any]]:
        native = self._plan.native.device
        side = dataclasses.replace(
            self._plan.device, program=CHILD, native=native, cores=self._cores()
        )
        child = Child(side, self._row.name, self._size, builders=self._builders)
        self._child = opened.enter_context(child)
        return dict.fromkeys(self._ends, self._child.started(deadline))

    def _build(self, deadline: float) -> dict[str, dict[str, Any]]:
        said = self._child.ask("build", deadline)
        self._found["equal"] = said["equal"]
        return {name: said[name] for name in self._ends}

    def _turn_of(self, name: str, deadline: float) -> dict[str, Any]:
        return self._child.ask(f"turn {name}", deadline)

    def _finish(self, deadline: float) -> dict[str, dict[str, Any]]:
        said = self._child.finished(deadline)
        return {name: said[name] for name in self._ends}
