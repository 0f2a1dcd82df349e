"""Owns: the result file, JSON lines: one header, then one line for each operator and pass.

It is appended to line by line, so that an interrupted run keeps what it has;
readable after a write was cut short; several files of the same setup can be merged.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO

Status = Literal["done", "crash", "timeout"]


@dataclass(frozen=True)
class Failure:
    """One failed case: which, what kind of difference, and in words."""

    case: str
    kind: str
    message: str


@dataclass
class UnitResult:
    """What one operator did in one pass."""

    op: str
    pass_name: str
    status: Status = "done"
    passed: int = 0
    """cases equal to stock CPU (inexact ones included)"""
    failed: int = 0
    """cases different from stock CPU; a crash or a time-out counts as one"""
    skipped: int = 0
    """cases that stock CPU itself rejects; not counted"""
    inexact: int = 0
    """passed cases equal only within the dtype's default tolerance"""
    largest_difference: float = 0.0
    """absolute, over the inexact cases"""
    accepted: int = 0
    """skipped cases that the device carries out all the same"""
    first_accepted: str = ""
    truncated: bool = False
    """there were more cases than the limit"""
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str]:
        """What identifies the unit in a result file."""
        return self.op, self.pass_name

    @property
    def counted(self) -> int:
        """Cases that stock CPU carries out."""
        return self.passed + self.failed

    @property
    def ok(self) -> bool:
        """No case differed and nothing crashed; true also where there was no case."""
        return self.status == "done" and self.failed == 0

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> UnitResult:
        """The reverse of `to_json`."""
        failures = [Failure(**failure) for failure in data["failures"]]
        return cls(**{**data, "failures": failures})


@dataclass(frozen=True)
class Header:
    """The setup that results belong to; only results of equal setups are merged or resumed."""

    device: str
    tier: str
    torch: str
    python: str
    machine: str
    seed: int
    passes: tuple[str, ...]
    entries: tuple[str, ...]
    """all entries of this PyTorch's op_db, run or not"""


class ResultError(ValueError):
    """A result file that cannot be read or does not belong to this setup."""


class ResultFile:
    """A file that results are appended to, each flushed as it comes."""

    def __init__(self, path: Path, header: Header, *, resume: bool) -> None:
        """Raises `ResultError` if resuming a file of another setup or overwriting one."""
        self.done: dict[tuple[str, str], UnitResult] = {}
        if path.exists() and path.stat().st_size:
            if not resume:
                raise ResultError(f"{path} exists: resume it or name another file")
            found, self.done = read(path)
            if found != header:
                raise ResultError(f"{path} belongs to another setup: {_difference(found, header)}")
        # Rewritten rather than appended to: this drops a last line that was cut short. Beside
        # the old file first, so that an interruption here loses nothing.
        beside = path.with_name(path.name + ".new")
        lines = [{"header": asdict(header)}, *(unit.to_json() for unit in self.done.values())]
        beside.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        beside.replace(path)
        self._stream: TextIO = path.open("a", encoding="utf-8")

    def append(self, unit: UnitResult) -> None:
        """Write one result through to the file."""
        self.done[unit.key] = unit
        self._stream.write(json.dumps(unit.to_json()) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


def read(path: Path) -> tuple[Header, dict[tuple[str, str], UnitResult]]:
    """A file's header and results; a last line without its newline is dropped."""
    complete, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    if not complete:
        raise ResultError(f"{path} holds no header")
    try:
        first, *rest = (json.loads(line) for line in complete.split("\n"))
        raw = first["header"]
        lists = {name: tuple(raw[name]) for name in ("passes", "entries")}
        header = Header(**{**raw, **lists})
        units = [UnitResult.from_json(data) for data in rest]
    except (ValueError, KeyError, TypeError) as error:
        raise ResultError(f"{path} is no result file: {error}") from error
    return header, {unit.key: unit for unit in units}


def merge(paths: list[Path]) -> tuple[Header, dict[tuple[str, str], UnitResult]]:
    """The results of several files of one setup. The same unit twice is an error."""
    header: Header | None = None
    merged: dict[tuple[str, str], UnitResult] = {}
    for path in paths:
        found, units = read(path)
        if header is not None and found != header:
            raise ResultError(f"{path} belongs to another setup: {_difference(header, found)}")
        header = found
        for key, unit in units.items():
            if key in merged:
                raise ResultError(f"{path} repeats {key[0]} in pass {key[1]}")
            merged[key] = unit
    if header is None:
        raise ResultError("no result file given")
    return header, merged


def _difference(first: Header, second: Header) -> str:
    names = [name for name in asdict(first) if getattr(first, name) != getattr(second, name)]
    return ", ".join(
        name  # the entries are too many to print
        if name == "entries"
        else f"{name} {getattr(first, name)!r} and not {getattr(second, name)!r}"
        for name in names
    )
