"""Owns: a run: three processes, programs given to each in turn, and what came of it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from torch_fl import settings

from .child import FLAGOS
from .compare import Outcome, Run, Verdict, judge
from .known import expected
from .record import Record
from .registry import Program
from .side import Side

__all__ = ["Request", "RequestError", "Result", "native_of", "run"]

_MORE_NATIVES: Final = (4, 16)
"""Further native runs where two were alike and flagos was not: chance may have made them so. The
first number of them, or the second where that takes less than `_MORE_S`. The last is in a new
process: some choices, such as an algorithm by its time, are made once for one."""
_MORE_S: Final = 2.0


class RequestError(ValueError):
    """What was asked for does not fit this machine."""


@dataclass(frozen=True)
class Request:
    """What to run. Without `native`, flagos is compared with what it stands on.

    `again` does not take outcomes from `json`; `first` is Python that every child runs before
    programs, for tests.
    """

    programs: Sequence[Program]
    native: str = ""
    plugin: str = ""
    json: Path | None = None
    again: bool = False
    time_limit_s: float = 120.0
    first: str = ""


@dataclass(frozen=True)
class Result:
    """What came of one program. Seconds and peaks (bytes) are of the first native run, flagos'."""

    program: str
    outcome: str
    as_expected: bool
    detail: str
    worst: float
    compared: int
    seconds: tuple[float, float]
    peaks: tuple[int | None, int | None]

    @classmethod
    def of(cls, entry: Mapping[str, Any], program: str) -> Result:
        """From what a record has of it."""
        values = {name: entry[name] for name in cls.__dataclass_fields__ if name != "program"}
        values["seconds"], values["peaks"] = tuple(entry["seconds"]), tuple(entry["peaks"])
        return cls(program=program, **values)


def run(
    request: Request,
    on_start: Callable[[Mapping[str, str], int], None] = lambda build, todo: None,
    on_result: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Runs what was asked for.

    Args:
        request: what to run.
        on_start: told what it is run on, and how many programs have no outcome yet.
        on_result: told each outcome as it comes, those of earlier runs too.

    Raises RequestError, RecordError, StartError.
    """
    results = []
    record = Record(request.json)
    with tempfile.TemporaryDirectory(prefix="torch-fl-programs-") as folder:
        sides = _Sides(request, Path(folder))
        try:
            record.begin(sides.build)
            done = {} if request.again else _done(request, record)
            on_start(sides.build, len(request.programs) - len(done))
            for program in request.programs:
                result = done.get(program.name) or sides.compare(program)
                if program.name not in done:
                    entry = asdict(result)
                    del entry["program"]
                    record.keep(program.name, {**entry, "date": time.strftime("%Y-%m-%d")})
                results.append(result)
                on_result(result)
        finally:
            sides.close()
    return results


def _done(request: Request, record: Record) -> dict[str, Result]:
    found = {program.name: record.find(program.name) for program in request.programs}
    return {name: Result.of(entry, name) for name, entry in found.items() if entry is not None}


class _Sides:
    """Flagos, the native device, and the native device once more."""

    def __init__(self, request: Request, folder: Path) -> None:
        self._time_limit_s = request.time_limit_s
        variables = {settings.FLAGOS_PLUGIN.name: request.plugin} if request.plugin else {}
        self._flagos = Side(FLAGOS, folder / "flagos", variables, request.first)
        try:
            said = self._flagos.start()
            self.native: Final = native_of(request, said)
        except BaseException:
            self._flagos.close()
            raise
        self._natives = [
            Side(self.native, folder / name, variables, request.first)
            for name in ("native", "again")
        ]
        facts = ("build", "plugin", "plugin_version", "device", "torch", "python", "machine")
        self.build: Final[dict[str, str]] = {
            "native": self.native,
            **{name: str(said[name]) for name in facts},
        }

    def compare(self, program: Program) -> Result:
        """Runs a program on all sides and judges it."""
        natives = [self._run(side, program) for side in self._natives]
        flagos = self._run(self._flagos, program)
        verdict = judge(natives, flagos)
        least, most = _MORE_NATIVES
        spent = sum(run.seconds for run in natives)
        many = most if spent * most / len(natives) < _MORE_S else least
        for more in range(1, many + 1):
            if verdict.outcome not in (Outcome.CLOSE, Outcome.DIFFERS):
                break
            if more == many:
                self._natives[1].close()
            natives.append(self._run(self._natives[1], program))
            verdict = judge(natives, flagos)
        return self._result(program, verdict, natives[0], flagos)

    def close(self) -> None:
        """Ends the processes."""
        for side in (self._flagos, *self._natives):
            side.close()

    def _run(self, side: Side, program: Program) -> Run:
        return side.run(program.name, self.native, self._time_limit_s)

    def _result(self, program: Program, verdict: Verdict, native: Run, flagos: Run) -> Result:
        fine, why = expected(program.name, self.native, verdict)
        return Result(
            program=program.name,
            outcome=verdict.outcome.value,
            as_expected=fine,
            detail=" - ".join(text for text in (verdict.detail, why) if text),
            worst=verdict.worst,
            compared=len(native.results),
            seconds=(native.seconds, flagos.seconds),
            peaks=(native.peak, flagos.peak),
        )


def native_of(request: Request, said: Mapping[str, Any]) -> str:
    """The device to compare with, by what a process on flagos said. Raises RequestError."""
    target = said["target"]
    if target is None:
        raise RequestError(
            f"the backend {said['plugin']!r} has kernels of its own and no native device to be "
            "compared with: `torch-fl conformance` compares it with the CPU"
        )
    if request.native and request.native != target:
        raise RequestError(
            f"flagos stands on {target!r} here, by the backend {said['plugin']!r}, and not on "
            f"{request.native!r}: choose another one with --plugin (host is the one on the CPU)"
        )
    return str(target)
