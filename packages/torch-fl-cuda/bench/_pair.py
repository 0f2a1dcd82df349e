"""Owns: a row's two sides in a pair of processes, built and then measured in turns.

The two live at the same time and work one after the other, in random order: what changes on the
machine while they do meets both sides. Building and warming happen one after the other too, unless
the row says otherwise: while cuDNN tries its algorithms nothing else may be on the device.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import time
from collections.abc import Iterator
from typing import Any

from _plan import Plan, left
from _rows import Row
from _sides import Child, ChildError


class Pair:
    """Two new processes, native and on the device, to be told `build` and then `measure`; between
    these they wait for a word, and do nothing. Use it in a `with` block: it leaves nothing behind.

    `number` decides the order of its turns. `built_with` is the number of rows that are built at
    the same time, this one among them. Both phases raise ChildError and UnavailableError, and
    OutOfTimeError where it is the end of the run that cut them off: that is no failure of the row.
    """

    s: float = 0.0
    """Seconds that its phases have taken; waiting for other rows is none of them."""

    def __init__(self, row: Row, plan: Plan, number: int, built_with: int = 1) -> None:
        self._row, self._plan = row, plan
        self._size = plan.size(row)
        self._builders = 2 * built_with
        self._random = random.Random(f"{row.name} {number}")
        self._opened = contextlib.ExitStack()
        self._children: dict[str, Child] = {}
        self._ends: dict[str, dict[str, Any]] = {"native": {}, "device": {}}
        self._found: dict[str, Any] = {"built_with": built_with}
        self._note = ""

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def build(self, deadline: float) -> None:
        """Starts its processes, builds and warms. Where it raises, all have ended: one that went
        on would disturb those that are measured next."""
        with self._working(), contextlib.ExitStack() as opened:
            for name, said in self._start(opened, deadline).items():
                self._ends[name] |= {key: round(said[key], 3) for key in ("start_s", "import_s")}
            notes = set()
            for name, said in self._build(deadline).items():
                self._ends[name] |= {"first": said["first"], "build_s": round(said["s"], 2)}
                notes.add(said["note"])
            if len(notes) > 1:
                ran = ", ".join(sorted(notes))
                raise ChildError(f"the two sides ran different things: {ran}")
            self._note = notes.pop()
            self._opened = opened.pop_all()

    def measure(self, deadline: float) -> tuple[dict[str, Any], str]:
        """What the turns took and both sides said; and the workload's note."""
        built_s = self.s
        with self._working():
            left(self._plan.deadline)  # rows that were built with this one may have used it up
            turns = [self._turn(deadline) for _ in range(self._size["turns"])]
            for name, said in self._finish(deadline).items():
                self._ends[name] |= {key: said[key] for key in ("last", "peak_bytes", "reports")}
        took = {"measured_s": round(self.s - built_s, 1), "s": round(self.s, 1)}
        return {"turns": turns, **self._ends, **self._found, **took}, self._note

    def _turn(self, deadline: float) -> list[float]:
        took = {
            name: round(self._turn_of(name, deadline)["ms"], 6) for name in self._in_random_order()
        }
        return [took["native"], took["device"]]

    def _start(self, opened: contextlib.ExitStack, deadline: float) -> dict[str, dict[str, Any]]:
        """What each side says when it has started; `opened` ends the processes."""
        cores = self._cores()
        for each in (self._plan.native, self._plan.device):
            side = dataclasses.replace(each, cores=cores)
            child = Child(side, self._row.name, self._size, builders=self._builders)
            self._children[side.name] = opened.enter_context(child)
        return {name: child.started(deadline) for name, child in self._children.items()}

    def _build(self, deadline: float) -> dict[str, dict[str, Any]]:
        """What each side says when it is built."""
        order = self._in_random_order()
        said: dict[str, dict[str, Any]] = {}
        for names in (order,) if self._row.together else ([name] for name in order):
            for name in names:
                self._children[name].tell("build")
            for name in names:
                said[name] = self._children[name].answer("build", deadline)
        return said

    def _turn_of(self, name: str, deadline: float) -> dict[str, Any]:
        """What a side says of its turn."""
        return self._children[name].ask("turn", deadline)

    def _finish(self, deadline: float) -> dict[str, dict[str, Any]]:
        """What each side says at its end."""
        said: dict[str, dict[str, Any]] = {}
        for name, child in self._children.items():
            ending = time.monotonic()
            said[name] = child.finished(deadline)
            self._ends[name] |= {"end_s": round(time.monotonic() - ending, 2)}
        return said

    def _cores(self) -> frozenset[int] | None:
        """Neighbouring processors for both: those of a machine differ in speed, by what else runs
        beside them, so that two processes with their own would differ too."""
        usable = sorted(os.sched_getaffinity(0))
        count = self._row.cores
        if not count or len(usable) <= count:
            return None
        first = self._random.randrange(len(usable) // count) * count
        return frozenset(usable[first : first + count])

    def _in_random_order(self) -> list[str]:
        return self._random.sample(sorted(self._ends), 2)

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        """Counts the seconds, and tells the end of the run from a failure."""
        began = time.monotonic()
        try:
            yield
        except ChildError:
            left(self._plan.deadline)
            raise
        finally:
            self.s += time.monotonic() - began
