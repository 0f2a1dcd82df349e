"""Owns: the file of results: one JSON, to which each run adds what it has measured.

It is the evidence from which docs/performance.md is made. A row keeps its figures until it is
measured again; text under `reason`, a profile, and what is known of a pair's time stay with it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from _plan import AT_LEAST

FORMAT: Final = 1
KEPT = ("reason", "profile", AT_LEAST)


class ResultsError(ValueError):
    """A file that holds no results, or others than these."""


def kind_of(target: str) -> str:
    """`hardware`, or `host` where no accelerator was used."""
    return "host" if target == "cpu" else "hardware"


class Results:
    """The rows that have been measured, in memory and, with a path, in a file.

    Raises ResultsError if the file is of another format, of other devices, or of quick runs where
    this is none.
    """

    def __init__(self, path: Path | None, native: str, device: str, *, quick: bool) -> None:
        self._path = path
        kind = kind_of(native.partition(":")[0])
        head = {"format": FORMAT, "kind": kind, "quick": quick, "native": native, "device": device}
        self._data: dict[str, Any] = {**head, "rows": {}}
        if path is not None and path.exists():
            self._data = _read(path, head)

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        """Records by row."""
        rows: dict[str, dict[str, Any]] = self._data["rows"]
        return rows

    def record(self, name: str, identity: dict[str, Any], *, again: bool) -> dict[str, Any]:
        """The record to go on with: the one that is there, or a new one, to be put in its place
        when it has something.

        `identity` says what a row's figures were measured on; where it has changed the row begins
        anew, since its figures would not belong together.
        """
        old = self.rows.get(name, {})
        same = all(old.get(key) == value for key, value in identity.items())
        if same and not again:
            return old
        return {key: old[key] for key in KEPT if key in old} | identity

    def keep(self, name: str, record: dict[str, Any]) -> None:
        """Puts a row's record in its place, and writes the file."""
        self.rows[name] = record
        self.save()

    def save(self) -> None:
        """Write the file in one piece: a run may be ended at any moment."""
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        new.write_text(_text(self._data), encoding="utf-8")
        os.replace(new, self._path)


def _read(path: Path, head: dict[str, Any]) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = {key: data[key] for key in head}
        data["rows"].items()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultsError(f"{path} holds no results of this benchmark: {error!r}") from error
    if found != head:
        raise ResultsError(f"{path} is of {found}, not of {head}; give another --json file")
    return data


def _text(data: dict[str, Any]) -> str:
    """JSON with a line for each value of a row, and its lists of numbers in one line."""
    rows = [
        f'  "{name}": {{\n'
        + ",\n".join(f'   "{key}": {json.dumps(value)}' for key, value in record.items())
        + "\n  }"
        for name, record in data["rows"].items()
    ]
    head = "".join(f' "{key}": {json.dumps(data[key])},\n' for key in data if key != "rows")
    return "{\n" + head + ' "rows": {\n' + ",\n".join(rows) + "\n }\n}\n"
