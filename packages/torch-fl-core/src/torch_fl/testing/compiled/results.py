"""Owns: the file of the smoke set's results: JSON lines, one where a graph begins and one with what
came of it, so that a graph which takes the process with it is known."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .execution import RAISES

__all__ = ["LEFT_OUT", "Results", "crashed", "read"]

LEFT_OUT = "left out"
"""The verdict of a graph that the device cannot have."""

_STARTS = 2
"""A graph may begin so often without coming to an end. Once says little: the process may have been
ended from outside."""

Record = dict[str, Any]


class Results:
    """The results of a file, which new ones are added to; without a file they are only remembered.

    `done`: the latest result of each graph.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        lines = [*_lines(path)] if path is not None and path.exists() else []
        self.done = _results(lines)
        self._starts = Counter(line["name"] for line in lines if line.get("started"))
        self._starts.subtract(line["name"] for line in lines if line.get("interrupted"))
        if path is not None and path.exists():
            # Rewritten: this drops a last line that was cut short.
            beside = path.with_name(path.name + ".new")
            beside.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
            beside.replace(path)

    def has(self, name: str) -> bool:
        """Whether a graph need not run again. One that was left out may find another device."""
        return name in self.done and self.done[name]["verdict"] != LEFT_OUT

    def ended_the_process(self, name: str) -> bool:
        """Whether a graph without a result has begun as often as it may."""
        return not self.has(name) and self._starts[name] >= _STARTS

    def begin(self, name: str) -> None:
        """A graph begins."""
        self._starts[name] += 1
        self._append({"name": name, "started": True})

    def interrupt(self, name: str) -> None:
        """A graph has been ended from outside: its beginning does not count."""
        self._starts[name] -= 1
        self._append({"name": name, "interrupted": True})

    def add(self, record: Record) -> None:
        """What came of a graph; nothing is written where that is known."""
        if self.done.get(record["name"]) != record:
            self.done[record["name"]] = record
            self._append(record)

    def _append(self, line: Record) -> None:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def read(paths: list[Path]) -> dict[str, Record]:
    """The results of several files by graph."""
    return _results([line for path in paths for line in _lines(path)])


def crashed(name: str, device: str) -> Record:
    """The result of a graph that has ended its process as often as it has begun."""
    note = f"the process ended in it, {_STARTS} times"
    return {"name": name, "device": device, "verdict": RAISES, "breaks": 0, "notes": [note]}


def _results(lines: list[Record]) -> dict[str, Record]:
    return {line["name"]: line for line in lines if "verdict" in line}


def _lines(path: Path) -> Iterator[Record]:
    """A last line without its newline is left out."""
    complete, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    for text in complete.splitlines():
        yield json.loads(text)
