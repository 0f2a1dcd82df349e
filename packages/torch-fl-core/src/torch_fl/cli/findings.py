"""Owns: what a check of the doctor found, as it goes from a child process to the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "FAILED", "not tried"]


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    `said` is what was found; its first line can stand alone. `advice` is what to do about it, empty
    where `said` has it or there is nothing to do. `output` is what else helps: a traceback, or the
    last lines that the child process printed.
    """

    check: str
    state: State
    said: str
    advice: str = ""
    output: str = ""

    @property
    def line(self) -> str:
        """The first line of what was found."""
        return self.said.partition("\n")[0]
