"""Owns: running other programs: logged, with progress, within a time limit, without orphans."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

STEP = re.compile(r"^\s*\[(\d+)/(\d+)\]\s*(.*)")  # ninja's `[12/40] Building CXX object ...`
QUIET_SECONDS = 20.0  # between two progress lines where the line cannot be overwritten
PATIENCE = 5.0  # seconds between asking a program to end, telling it, and ending it
TIMED_OUT = 124  # as coreutils' timeout


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP, raised like Ctrl-C so that children are ended on the way out."""


def end_on_signals() -> None:
    """Lets SIGTERM and SIGHUP unwind the stack; by default they would leave children behind. And
    SIGINT: a script's background job ignores it from its start, and so would all children."""

    def terminate(number: int, frame: FrameType | None) -> None:
        raise Terminated(number)

    signal.signal(signal.SIGTERM, terminate)
    signal.signal(signal.SIGHUP, terminate)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def is_interactive() -> bool:
    """Whether a line may be drawn over: a terminal, and not a CI system's imitation of one."""
    return sys.stdout.isatty() and os.environ.get("CI", "").lower() in ("", "0", "false")


def _end(process: subprocess.Popen[str]) -> None:
    """Ends a child that leads its own process group, with everything that it started."""
    for number, patience in (
        (signal.SIGINT, PATIENCE),
        (signal.SIGTERM, PATIENCE),
        (signal.SIGKILL, None),
    ):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    limit: float | None = None,
    on_line: Callable[[str], None] | None = None,
    interactive: bool = False,
) -> int:
    """Runs a program to its end and returns its exit status (128 + n after signal n).

    Its output goes where ours goes, or line by line to `on_line`. After `limit` seconds it and
    everything that it started are ended and the status is TIMED_OUT. `interactive` leaves the
    child the terminal (a debugger's prompt needs it).
    """
    sys.stdout.flush()
    process = subprocess.Popen(
        list(command),
        env=dict(env),
        cwd=cwd,
        stdin=None if interactive else subprocess.DEVNULL,
        stdout=subprocess.PIPE if on_line else None,
        stderr=subprocess.STDOUT if on_line else None,
        text=True,
        errors="replace",
        start_new_session=not interactive,
    )
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        _end(process)

    # A thread, because this one may be waiting for a line of a program that says nothing any more.
    timer = threading.Timer(limit, expire) if limit and not interactive else None
    if timer:
        timer.start()
    try:
        if on_line and process.stdout:
            for line in process.stdout:
                on_line(line)
        status = process.wait()
    except BaseException:
        if interactive:
            process.wait()
        else:
            _end(process)
        raise
    finally:
        if timer:
            timer.cancel()
    if expired.is_set():
        return TIMED_OUT
    return status if status >= 0 else 128 - status


class Progress:
    """Writes a program's lines to a log and shows only how far it is."""

    def __init__(self, log: Path, title: str) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log.open("w", encoding="utf-8")
        self._title = title
        self._overwrite = is_interactive()
        self._start = self._shown = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        self._log.close()
        if self._overwrite:
            print("\r\033[K", end="", flush=True)

    def line(self, text: str) -> None:
        self._log.write(text)
        self._log.flush()
        step = STEP.match(text)
        now = time.monotonic()
        if self._overwrite and step:
            done = f"  {self._title}: [{step[1]}/{step[2]}] {now - self._start:.0f} s"
            print(f"\r\033[K{done}", end="", flush=True)
        elif not self._overwrite and step and now - self._shown >= QUIET_SECONDS:
            self._shown = now
            print(f"  {self._title}: [{step[1]}/{step[2]}] {now - self._start:.0f} s", flush=True)


def run_logged(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path, title: str
) -> int:
    """Runs a program with its output in `log` and its progress on ours."""
    with Progress(log, title) as progress:
        progress.line("$ " + " ".join(command) + "\n")
        return run(command, env=env, cwd=cwd, on_line=progress.line)


def log_extract(log: Path, most: int = 25) -> str:
    """The lines of a log that say what went wrong, else its end."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line for line in lines if re.search(r"\berror\b\s*[:\[]|Killed signal", line, re.I)]
    return "\n".join("  | " + line for line in (errors[:most] or lines[-most:]))
