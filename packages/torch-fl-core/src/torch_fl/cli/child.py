"""Owns: making checks in a child process, so that a crash or a hang is a finding like any other."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch_fl.cli.findings import Finding
from torch_fl.cli.probes import ADVICE

# The child looks for packages where this process does, whatever its first argument is. What it
# imports first, it imports as any program would; after that it is a part of the command line.
_CODE = """
import sys
sys.path[:] = {path!r}
{first}
import torch_fl_entry
torch_fl_entry.is_command_line = True
from torch_fl.cli.probes import main
main({names!r}, {report})
"""
_SHOWN_LINES = 15
_LINE = 300  # characters of a line that are shown
_FATAL = "Fatal Python error"
_POLL_S = 0.2
_DUMP_S = 2.0  # for a process that hangs to say where


@dataclass(frozen=True)
class Child:
    """What became of a child process.

    `findings` are in the order of the checks; a crash is one of them. `crashed`: it did not come to
    the end of its checks by itself.
    """

    findings: tuple[Finding, ...]
    crashed: bool

    @property
    def failed(self) -> bool:
        """Whether anything is wrong."""
        return any(finding.state == "FAILED" for finding in self.findings)


def run(
    names: Sequence[str],
    time_limit: float,
    *,
    first: str = "",
    env: Mapping[str, str | None] | None = None,
) -> Child:
    """Make the checks `names` of `probes` in one child process, until one fails.

    Args:
        names: keys of `probes.CHECKS`.
        time_limit: seconds for each check; a child that takes longer is ended.
        first: a statement that the child begins with.
        env: variables on top of this process's; None removes one.
    """
    variables: dict[str, str | None] = {**os.environ, **(env or {})}
    read, write = os.pipe()
    code = _CODE.format(path=sys.path, first=first, names=list(names), report=write)
    with tempfile.TemporaryFile() as printed, contextlib.ExitStack() as stack:
        stack.callback(os.close, read)
        try:
            process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", "-c", code],
                env={name: value for name, value in variables.items() if value is not None},
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                pass_fds=[write],
                start_new_session=True,  # what it starts ends with it
            )
        except OSError as error:
            said = f"Python cannot be started as {sys.executable!r}: {error}"
            return Child((Finding(names[0], "FAILED", said),), crashed=True)
        finally:
            os.close(write)
        stack.callback(_end, process)  # also when the user interrupts
        findings: list[Finding] = []
        running: str | None = names[0]
        timed_out = False
        for line in _lines(read, process, time_limit):
            if line is None:
                timed_out = True
                _interrupt(process)
                break
            message = json.loads(line)
            running = message.get("begins")
            findings += [Finding(**finding) for finding in message.get("findings", ())]
        printed.seek(0)
        output = _extract(printed.read().decode(errors="replace"))
    if timed_out:
        said = f"no answer within {time_limit:g} s"
    elif process.returncode < 0:
        said = f"signal {-process.returncode} ({_signal(-process.returncode)})"
    elif process.returncode or running is not None:
        last = output.rpartition("\n")[2]
        said = f"it ended the process with exit code {process.returncode}{last and f': {last}'}"
    else:
        return Child(tuple(findings), crashed=False)
    if running is None:  # all checks had been made, or one has failed
        said = f"when the process ended: {said}"
    check = "exit" if running is None else running
    findings.append(Finding(check, "FAILED", said, _advice(check, -process.returncode), output))
    return Child(tuple(findings), crashed=True)


def _lines(
    read: int, process: subprocess.Popen[bytes], time_limit: float
) -> Iterator[bytes | None]:
    """Lines as they come; None, and no more, when none has come for too long."""
    buffer, deadline = b"", time.monotonic() + time_limit
    while True:
        ended = process.poll() is not None  # before reading: what it wrote can all be read then
        ready = select.select([read], [], [], 0 if ended else _POLL_S)[0]
        if ready and (data := os.read(read, 2**16)):
            *lines, buffer = (buffer + data).split(b"\n")
            yield from lines
            deadline = time.monotonic() + time_limit
        elif ended:
            return
        elif time.monotonic() > deadline:
            yield None
            return
        elif ready:  # closed, but the process has not ended
            time.sleep(_POLL_S)


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """Ends a process that hangs; faulthandler prints where it is."""
    process.send_signal(signal.SIGABRT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_DUMP_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends what is left of a process and of those that it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return "no name"


def _extract(text: str) -> str:
    """The lines that help: what faulthandler says of a crash, or else the last ones."""
    lines = [line[:_LINE] for line in text.rstrip().splitlines()]
    fatal = [number for number, line in enumerate(lines) if line.startswith(_FATAL)]
    if fatal:
        return "\n".join(lines[fatal[0] : fatal[0] + _SHOWN_LINES])
    return "\n".join(lines[-_SHOWN_LINES:])


def _advice(check: str, number: int) -> str:
    if number == signal.SIGKILL:
        return (
            f"Something ended the process, perhaps the kernel for want of memory. {ADVICE[check]}"
        )
    return ADVICE[check]
