"""Owns: what `./dev` remembers between runs, one fingerprint for each finished step.

A step is done when the fingerprint of its inputs is the remembered one. Contents are hashed, not
times: a fresh checkout or a branch switch changes times and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def fingerprint(values: Iterable[str], files: Iterable[Path] = (), root: Path | None = None) -> str:
    """Hash of some texts and of the names and contents of some files (missing ones included)."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(value.encode() + b"\0")
    for path in files:
        name = path.relative_to(root) if root else path
        digest.update(os.fsencode(name) + b"\0")
        digest.update(path.read_bytes() if path.is_file() else b"missing")
        digest.update(b"\0")
    return digest.hexdigest()


class State:
    """The remembered steps of one environment, kept in a small JSON file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._steps: dict[str, dict[str, Any]] = {}
        self.reload()

    def reload(self) -> None:
        """Reads the file again; an absent or damaged one means that nothing is done yet."""
        try:
            data = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            data = {}
        steps = data.get("steps") if isinstance(data, dict) else None
        self._steps = steps if isinstance(steps, dict) else {}

    def is_done(self, step: str, inputs: str) -> bool:
        return self._steps.get(step, {}).get("inputs") == inputs

    def seconds(self, step: str) -> float | None:
        """The longest that the step has taken here (a later one often has less to do)."""
        value = self._steps.get(step, {}).get("seconds")
        return float(value) if isinstance(value, (int, float)) else None

    def forget(self, step: str) -> None:
        """Before a step starts: if it is interrupted, it must not count as done."""
        if step in self._steps:
            self._steps[step].pop("inputs", None)
            self._write()

    def record(self, step: str, inputs: str, seconds: float) -> None:
        longest = max(seconds, self.seconds(step) or 0.0)
        self._steps[step] = {"inputs": inputs, "seconds": round(longest, 1)}
        self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Written aside and renamed: a reader or a crash never meets half a file.
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        temporary.write_text(json.dumps({"steps": self._steps}, indent=1), encoding="utf-8")
        temporary.replace(self._path)
