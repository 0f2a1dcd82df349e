"""Owns: the file in which outcomes are kept, so that a run can be stopped and go on.

JSON: "builds" says for each build (a digest of torch_fl's files) and machine what they were;
"programs" has the latest outcome of each, with its build. An outcome counts as long as build and
machine are the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

__all__ = ["Record", "RecordError"]

FORMAT: Final = 1


class RecordError(ValueError):
    """A file that is no record of programs. The text names it."""


class Record:
    """The outcomes of one file; without a file, of this process.

    `path` is the file, which need not exist. Raises RecordError.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._build = ""
        self._builds: dict[str, dict[str, str]] = {}
        self._programs: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            self._read(path)

    def begin(self, build: Mapping[str, str]) -> None:
        """Says what is being run: "build" (its digest) and facts, such as versions and device."""
        self._build = "/".join(build.values())
        self._builds[self._build] = dict(build)

    @property
    def builds(self) -> Mapping[str, Mapping[str, str]]:
        """What each build and machine was, by the name that outcomes have for it."""
        return self._builds

    @property
    def programs(self) -> Mapping[str, Mapping[str, Any]]:
        """The latest outcome of each program, of whatever build."""
        return self._programs

    def find(self, program: str) -> dict[str, Any] | None:
        """The outcome that a program has in this build on this machine."""
        entry = self._programs.get(program)
        return entry if entry is not None and entry["build"] == self._build else None

    def keep(self, program: str, entry: Mapping[str, Any]) -> None:
        """Keeps an outcome, in the file too."""
        self._programs[program] = {"build": self._build, **entry}
        if self._path is None:
            return
        used = {item["build"] for item in self._programs.values()}
        data = {
            "format": FORMAT,
            "builds": {name: facts for name, facts in self._builds.items() if name in used},
            "programs": dict(sorted(self._programs.items())),
        }
        # Another file first: a run may be killed at any moment.
        beside = self._path.with_name(self._path.name + ".new")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        os.replace(beside, self._path)

    def _read(self, path: Path) -> None:
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            if data["format"] != FORMAT:
                raise ValueError("another format")
            self._builds, self._programs = dict(data["builds"]), dict(data["programs"])
        except (ValueError, KeyError, TypeError) as error:
            raise RecordError(f"{path} is no record of programs: {error}") from error
