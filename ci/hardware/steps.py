"""Owns: how a step is run on a machine that is borrowed for minutes, and what is kept of it.

A step is a function that is given a `Job` and returns an exit status. OUTPUT_FOLDER/steps has of
each NAME.json, how it ended, and NAME.txt, what its programs printed. A step that has succeeded is
passed by in later visits, unless it is one of every visit.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "packages/torch-fl-core"
VENV = ROOT / "build/hardware-venv"
PYTHON = str(VENV / "bin/python")

LEAST_S = 20.0
"""With less time left nothing is started."""
RESERVE_S = 20.0
"""Of a visit, for ending what runs too long and for packing."""
INTERRUPTED_S = 10.0
"""What an interrupted program has to say what it knows."""
TIMED_OUT = 124
SHOWN = {True: 2500, False: 400}
"""Characters that are printed of what a step's programs printed, by whether it has failed."""


@dataclass
class Visit:
    """`ends` is a time of `time.monotonic`; `facts` are of machine and build, for every record."""

    output: Path
    ends: float
    began: float = field(default_factory=time.time)
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def steps(self) -> Path:
        """The folder of what is kept of the steps."""
        return self.output / "steps"

    def left(self) -> float:
        """Seconds that a program may still run."""
        return self.ends - RESERVE_S - time.monotonic()


@dataclass(frozen=True)
class Job:
    """What a step works with: the visit, the folder of results, and programs."""

    visit: Visit
    name: str

    @property
    def output(self) -> Path:
        """The folder in which a step may keep results of its own."""
        return self.visit.output

    def log(self, part: str = "") -> Path:
        """What the programs have printed; those of a part have a file of their own."""
        return self.visit.steps / (f"{self.name}.{part}.txt" if part else f"{self.name}.txt")

    def logs(self) -> list[Path]:
        """All that there are."""
        return [*self.visit.steps.glob(f"{self.name}.txt"), *self._parts()]

    def _parts(self) -> list[Path]:
        return sorted(self.visit.steps.glob(f"{self.name}.*.txt"))

    def run(
        self,
        *command: str,
        most: float = 600.0,
        part: str = "",
        variables: Mapping[str, str] | None = None,
    ) -> int:
        """The exit status of a program in the core's folder, `TIMED_OUT` after `most` seconds or at
        the visit's end.

        It is interrupted then, which lets pytest report what it has, and killed if that does not
        help. Nothing that it has started outlives it.
        """
        allowed = max(0.0, min(most, self.visit.left()))
        with self.log(part).open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=CORE,
                env={**environment(), **(variables or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                return process.wait(allowed)
            except subprocess.TimeoutExpired:
                _signal_group(process, signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(INTERRUPTED_S)
                log.write(f"\ninterrupted after {allowed:.0f} s\n".encode())
                return TIMED_OUT
            finally:
                _signal_group(process, signal.SIGKILL)
                process.wait()


def environment() -> dict[str, str]:
    """Variables of all programs. Not PYTHONPATH: tests give their child processes one of their own.
    And no backend is chosen by whoever calls: steps choose."""
    own = ("PYTHONPATH", "FLAGOS_PLUGIN")
    variables = {name: value for name, value in os.environ.items() if name not in own}
    return {**variables, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONUNBUFFERED": "1"}


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # nobody of it is left
        os.killpg(process.pid, number)


@dataclass(frozen=True)
class Step:
    """A named piece of a visit. `each_visit`: it is done in each, whatever earlier ones did."""

    name: str
    act: Callable[[Job], int]
    each_visit: bool = False


@dataclass(frozen=True)
class Outcome:
    """How a step has ended in this visit, in words, and whether it has succeeded in any."""

    name: str
    good: bool
    said: str


def read(file: Path) -> dict[str, Any]:
    """A step's record; empty where there is none, or none that can be read."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write(file: Path, found: dict[str, Any]) -> None:
    """Writes a record in one piece: a visit may end at any moment."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    os.replace(new, file)


def perform(visit: Visit, step: Step) -> Outcome:
    """Runs a step, unless it has succeeded before or there is no time left; records and prints."""
    outcome = _performed(visit, step)
    print(f"{step.name}: {outcome.said}", flush=True)
    return outcome


def _performed(visit: Visit, step: Step) -> Outcome:
    visit.steps.mkdir(parents=True, exist_ok=True)
    file = visit.steps / f"{step.name}.json"
    before = read(file)
    if before.get("status") == 0 and not step.each_visit:
        return Outcome(step.name, True, f"succeeded on {before.get('date')}, not repeated")
    if visit.left() < LEAST_S:
        return Outcome(step.name, False, "not started: no time is left")
    job = Job(visit, step.name)
    for log in job.logs():
        log.unlink()
    file.unlink(missing_ok=True)
    began = time.monotonic()
    try:
        status = step.act(job)
    except Exception:  # a mistake in one step does not end the others
        status = 1
        with job.log().open("a", encoding="utf-8") as log_of_step:
            traceback.print_exc(file=log_of_step)
    seconds = round(time.monotonic() - began, 1)
    head = {"step": step.name, "status": status, "seconds": seconds}
    write(file, {**head, "date": date.today().isoformat(), **visit.facts})
    logs = job.logs()
    shown = "".join(f"\n{_end(log, SHOWN[status != 0] // len(logs))}" for log in logs)
    return Outcome(step.name, status == 0, f"status {status} after {seconds} s{shown}")


def _end(file: Path, characters: int) -> str:
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - characters))
        return stream.read().decode(errors="replace").strip()


def perform_group(visit: Visit, group: Sequence[Step]) -> list[Outcome]:
    """Steps side by side."""
    with ThreadPoolExecutor(len(group)) as pool:
        return list(pool.map(partial(perform, visit), group))
