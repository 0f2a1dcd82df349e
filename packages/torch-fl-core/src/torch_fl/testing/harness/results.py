"""Owns: the result file, JSON lines: one header, then one line for each entry and pass.

It is appended to line by line, so that an interrupted run keeps what it has;
readable after a write was cut short; several files of the same setup can be merged.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TextIO

Status = Literal["done", "crash", "timeout"]
Kind = Literal["hardware", "emulated", "host"]
Key = tuple[str, str, str, str]
"""(configuration, suite, entry, pass)"""


@dataclass(frozen=True)
class Failure:
    """One failed case: which, what kind of difference, and in words."""

    case: str
    kind: str
    message: str


@dataclass
class UnitResult:
    """What one entry did in one pass. Suite and configuration are filled in by who knows them."""

    entry: str
    pass_name: str
    suite: str = ""
    configuration: str = ""
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
    device_lost: bool = False
    """an error in the device's own kernels made it unusable for the process: the last failure, or
    what its kernels were still doing. Cases after it were not evaluated"""
    seconds: float = 0.0
    """of the processor, samples included"""
    failures: list[Failure] = field(default_factory=list)
    fingerprints: dict[str, str] = field(default_factory=dict)
    """by case, where they are kept: "+" or "-" for passed or failed, and `fingerprint`'s digits"""

    @property
    def key(self) -> Key:
        """What identifies the unit in a result file."""
        return self.configuration, self.suite, self.entry, self.pass_name

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
    plugin: str
    plugin_version: str
    kind: Kind
    tier: str
    torch: str
    python: str
    machine: str
    seed: int
    configurations: tuple[str, ...]
    passes: dict[str, dict[str, tuple[str, ...]]]
    """for each configuration and suite of the run the names of the passes"""
    entries: dict[str, tuple[str, ...]]
    """for each suite all entries of this PyTorch's database, run or not"""
    fingerprints: bool = False
    """whether results keep fingerprints"""
    date: str = field(default="", compare=False)
    """when the run began, as year-month-day; a run that goes on later is the same"""
    device_name: str = field(default="", compare=False)
    """the accelerator's own name, if it has one"""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Header:
        """The reverse of ``dataclasses.asdict``, after JSON made lists of tuples."""
        passes = {
            configuration: {suite: tuple(names) for suite, names in suites.items()}
            for configuration, suites in data["passes"].items()
        }
        entries = {suite: tuple(names) for suite, names in data["entries"].items()}
        configurations = tuple(data["configurations"])
        replaced = {"passes": passes, "entries": entries, "configurations": configurations}
        return cls(**{**data, **replaced})


class ResultError(ValueError):
    """A result file that cannot be read or does not belong to this setup."""


class ResultFile:
    """A file that results are appended to, each flushed as it comes."""

    def __init__(self, path: Path, header: Header, *, resume: bool) -> None:
        """Raises `ResultError` if resuming a file of another setup or overwriting one. What crashed
        or took too long is dropped: it may have been the machine's fault, and is tried again."""
        self.done: dict[Key, UnitResult] = {}
        if path.exists() and path.stat().st_size:
            if not resume:
                raise ResultError(f"{path} exists: resume it or name another file")
            found, units = read(path)
            if found != header:
                raise ResultError(f"{path} belongs to another setup: {_difference(found, header)}")
            self.done = {key: unit for key, unit in units.items() if unit.status == "done"}
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


def read(path: Path) -> tuple[Header, dict[Key, UnitResult]]:
    """A file's header and results; a last line without its newline is dropped."""
    complete, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    if not complete:
        raise ResultError(f"{path} holds no header")
    try:
        first, *rest = (json.loads(line) for line in complete.split("\n"))
        header = Header.from_json(first["header"])
        units = [UnitResult.from_json(data) for data in rest]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultError(f"{path} is no result file: {error}") from error
    return header, {unit.key: unit for unit in units}


def merge(paths: list[Path]) -> tuple[Header, dict[Key, UnitResult]]:
    """The results of several files of one setup. The same unit twice is an error."""
    header: Header | None = None
    merged: dict[Key, UnitResult] = {}
    for path in paths:
        found, units = read(path)
        if header is not None and found != header:
            raise ResultError(f"{path} belongs to another setup: {_difference(header, found)}")
        header = found
        for key, unit in units.items():
            if key in merged:
                raise ResultError(f"{path} repeats {unit.entry} in pass {unit.pass_name}")
            merged[key] = unit
    if header is None:
        raise ResultError("no result file given")
    return header, merged


def _difference(first: Header, second: Header) -> str:
    names = [
        item.name
        for item in fields(Header)
        if item.compare and getattr(first, item.name) != getattr(second, item.name)
    ]
    return ", ".join(
        name  # the entries are too many to print
        if name in ("entries", "passes")
        else f"{name} {getattr(first, name)!r} and not {getattr(second, name)!r}"
        for name in names
    )
