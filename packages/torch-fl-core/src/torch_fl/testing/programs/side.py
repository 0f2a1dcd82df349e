"""Owns: one side of a comparison: a child process on one device, started, fed, timed, replaced.

A child that dies or takes too long costs the program that it was at; the next one finds a fresh
process. The child is another program: this process need not be able to start it the way it was
started itself, and what it reads is lines of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

from .child import FLAGOS
from .compare import Run

__all__ = ["Side", "StartError"]

_START_LIMIT_S: Final = 300.0
_DUMP_S: Final = 3.0  # for a process that hangs to say where
_LOG_CHARACTERS: Final = 1500

# Natively torch_fl is imported as its command line imports it: without a device.
_NATIVE: Final = """
import torch_fl_entry
torch_fl_entry.is_command_line = True
"""
_ON_FLAGOS: Final = "import torch_fl\n"
_CODE: Final = """
import sys
sys.path[:] = {path!r}
{first}
from torch_fl.testing.programs.child import main
main({device!r})
"""


class StartError(RuntimeError):
    """A child did not start: no program is to blame. The text has what it said."""


class Side:
    """Programs on one device.

    Args:
        device: "flagos", or the native device.
        folder: an empty folder of its own, for results and what the child prints.
        variables: environment variables on top of this process's.
        first: Python that the child runs before programs, for tests.
    """

    def __init__(
        self, device: str, folder: Path, variables: Mapping[str, str], first: str = ""
    ) -> None:
        self.device: Final = device
        self._folder = folder
        self._log = folder / "log"
        self._variables = {**variables}
        if device != FLAGOS:
            self._variables["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        import_first = _ON_FLAGOS if device == FLAGOS else _NATIVE
        self._code = _CODE.format(path=sys.path, first=import_first + first, device=device)
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._log_start = 0

    def start(self) -> dict[str, Any]:
        """Starts a child and returns what it says of itself. Raises StartError."""
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", self._code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **self._variables},
            )
        self._unread = b""
        ready = self._receive(_START_LIMIT_S)
        if isinstance(ready, dict):
            return ready
        end = "it took too long" if ready is None else self._end()
        self.close()
        raise StartError(f"no process on {self.device!r} could be started: {end}; {self._tail()}")

    def run(self, program: str, native: str, time_limit_s: float) -> Run:
        """Runs one program, starting a child if there is none. Raises StartError."""
        if self._process is None:
            self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        path = self._folder / "results.pt"
        request = {"program": program, "path": str(path), "native": native}
        self._log_start = self._log.stat().st_size
        answer: dict[str, Any] | bool | None = False
        # It may have died after its last answer; then nothing can be read either.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._receive(time_limit_s)
        if isinstance(answer, dict):
            return self._finished(answer, path)
        if answer is None:
            self._dump()
            run = Run("timed out", f"after {time_limit_s:g} s; {self._tail()}", time_limit_s)
        else:
            run = Run("crashed", f"{self._end()}; {self._tail()}")
        self.close()
        return run

    def close(self) -> None:
        """Ends the child, if there is one."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(_DUMP_S if process.poll() is None else 0.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _finished(self, answer: Mapping[str, Any], path: Path) -> Run:
        results = {}
        if answer["status"] == "done":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # dtypes that PyTorch calls experimental
                results = torch.load(path, map_location="cpu", weights_only=True)
            path.unlink()
        if answer["spent"]:
            self.close()
        return Run(answer["status"], answer["text"], answer["seconds"], answer["peak"], results)

    def _receive(self, time_limit_s: float) -> dict[str, Any] | bool | None:
        """The next answer; None after the time limit, False where the child has ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + time_limit_s
        source = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([source], [], [], left)[0]:
                return None
            read = os.read(source, 1 << 16)
            if not read:
                return False
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        return dict(json.loads(line))

    def _dump(self) -> None:
        """Lets a child that hangs print where, which ends it."""
        assert self._process is not None
        self._process.send_signal(signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_DUMP_S)

    def _end(self) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(_DUMP_S)
        except subprocess.TimeoutExpired:
            return "it closed its answers"
        return f"signal {-code}" if code < 0 else f"exit status {code}"

    def _tail(self) -> str:
        with self._log.open("rb") as stream:
            stream.seek(self._log_start)
            text = stream.read().decode(errors="replace")
        # faulthandler ends with a list of all extension modules, which hides what matters.
        told = text.partition("Extension modules:")[0]
        return " ".join(told[-_LOG_CHARACTERS:].split()) or "nothing printed"
