"""Owns: the worker processes: started, fed, timed, and replaced when they die.

A worker that dies or exceeds the time limit costs the (suite, entry, pass)
it was at, which is recorded as ``crash`` or ``timeout``; a fresh worker goes on with the next. It
does so as well where a unit made the device unusable for its process.
"""

from __future__ import annotations

import multiprocessing
import pickle
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from ctypes import c_char
from pathlib import Path
from typing import Any, Final

import torch_fl_entry

from .configurations import CONFIGURATIONS
from .results import Failure, Status, UnitResult
from .worker import POSITION_BYTES, Ready, Setup, serve

_START_LIMIT_S: Final = 300.0
_LOG_TAIL_CHARACTERS: Final = 1500

Unit = tuple[str, str, str]
"""(suite, entry, pass)"""
Serve = Callable[[Any, Any, Setup, str], None]
"""What runs in the worker process; see `worker.serve`."""


class WorkerStartError(RuntimeError):
    """A worker died before it was ready: no unit is to blame, so the run cannot go on."""


class WorkerProcess:
    """One worker, from its start to its end."""

    def __init__(self, setup: Setup, log: Path, target: Serve = serve) -> None:
        # Spawned, not forked: a fork copies the threads' locks of this process in any state.
        context = multiprocessing.get_context("spawn")
        self._setup = setup
        self._log = log
        self._log_start = log.stat().st_size if log.exists() else 0
        self._position = context.RawArray(c_char, POSITION_BYTES)
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=target, args=(theirs, self._position, setup, str(log)), daemon=True
        )
        if target is serve and setup.device.partition(":")[0] != "flagos":
            # Nothing that the process is given may import this package, which activates flagos.
            arguments = (theirs, self._position, pickle.dumps(setup), str(log))
            self._process = context.Process(
                target=torch_fl_entry.natively,
                args=("torch_fl.testing.harness.worker", "serve_natively", *arguments),
                daemon=True,
            )
        with CONFIGURATIONS[setup.configuration].in_force(setup.variables):
            self._process.start()
        theirs.close()  # or its end of the pipe stays open when the worker dies
        ready = self._receive(_START_LIMIT_S)
        if not isinstance(ready, Ready):
            raise WorkerStartError(f"a worker did not start ({self._end()}): {self._log_tail()}")
        self.ready: Final = ready

    def evaluate(self, unit: Unit, time_limit_s: float) -> UnitResult:
        """The unit's result; a status other than ``done`` means that this worker is dead."""
        try:
            self._connection.send(unit)
        except OSError:  # it died after its last answer
            return self._post_mortem(unit, "crash", time_limit_s)
        answer = self._receive(time_limit_s)
        if isinstance(answer, UnitResult):
            return self._placed(answer, unit)
        return self._post_mortem(unit, "timeout" if answer is None else "crash", time_limit_s)

    def close(self) -> None:
        """Let the worker end; end it if it does not."""
        self._connection.close()
        self._process.join(5)
        self.kill()

    def kill(self) -> None:
        """End the worker at once."""
        self._process.kill()
        self._process.join()

    def _receive(self, time_limit_s: float) -> object:
        """What the worker sends; None after the time limit, an EOFError object if it died."""
        try:
            return self._connection.recv() if self._connection.poll(time_limit_s) else None
        except (EOFError, ConnectionError) as error:
            return error

    def _post_mortem(self, unit: Unit, status: Status, time_limit_s: float) -> UnitResult:
        where = bytes(self._position.value).decode(errors="replace")
        end = f"no answer within {time_limit_s:g} s" if status == "timeout" else self._end()
        self.kill()
        failure = Failure(where, status, f"{end}; {self._log_tail()}")
        _, entry, pass_name = unit
        result = UnitResult(entry, pass_name, status=status, failed=1, failures=[failure])
        return self._placed(result, unit)

    def _placed(self, result: UnitResult, unit: Unit) -> UnitResult:
        result.suite, result.configuration = unit[0], self._setup.configuration
        return result

    def _end(self) -> str:
        self._process.join(5)
        code = self._process.exitcode
        if code is None:
            return "still running"
        return f"signal {-code}" if code < 0 else f"exit status {code}"

    def _log_tail(self) -> str:
        if not self._log.exists():
            return "nothing printed"
        with self._log.open("rb") as stream:
            stream.seek(self._log_start)
            text = stream.read().decode(errors="replace")
        # faulthandler ends with a list of all extension modules, which hides what matters.
        told = text.partition("Extension modules:")[0]
        return " ".join(told[-_LOG_TAIL_CHARACTERS:].split()) or "nothing printed"


class Runner:
    """Several workers on one queue.

    Args:
        setup: what the workers evaluate on.
        workers: how many.
        time_limit_s: for one entry in one pass.
        target: what runs in a worker.
    """

    def __init__(
        self, setup: Setup, workers: int, time_limit_s: float, target: Serve = serve
    ) -> None:
        self._setup = setup
        self._time_limit_s = time_limit_s
        self._target = target
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._alive: set[WorkerProcess] = set()
        self._directory = tempfile.TemporaryDirectory(prefix="conformance-")
        self._logs = [Path(self._directory.name) / f"worker-{i}.log" for i in range(workers)]
        self._first: WorkerProcess | None = self._start(self._logs[0])
        self.ready: Final = self._first.ready

    def run(self, units: Sequence[Unit], on_result: Callable[[UnitResult], None]) -> None:
        """Evaluate all units; ``on_result`` is called from one thread at a time."""
        queue = deque(units)
        with ThreadPoolExecutor(len(self._logs)) as threads:
            futures = [threads.submit(self._work, queue, log, on_result) for log in self._logs]
            try:
                # Not one after the other: the first may be waiting for a worker that hangs.
                for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                    future.result()
            except BaseException:
                self._stop()
                raise

    def close(self) -> None:
        """End what still runs and remove the logs."""
        self._stop()
        self._directory.cleanup()

    def _work(self, queue: deque[Unit], log: Path, on_result: Callable[[UnitResult], None]) -> None:
        worker: WorkerProcess | None = None
        while not self._stopping.is_set():
            with self._lock:
                if not queue:
                    break
                unit = queue.popleft()
                if worker is None:
                    worker, self._first = self._first, None
            if worker is None:
                worker = self._start(log)
            if self._stopping.is_set():  # while the worker started: nobody kills it from now on
                break
            result = worker.evaluate(unit, self._time_limit_s)
            if self._stopping.is_set():  # the worker was killed: not the unit's fault
                break
            if result.status != "done" or result.device_lost:
                self._alive.discard(worker)
                worker.kill()
                worker = None
            with self._lock:
                on_result(result)
        if worker is not None:
            self._alive.discard(worker)
            worker.close()

    def _start(self, log: Path) -> WorkerProcess:
        worker = WorkerProcess(self._setup, log, self._target)
        self._alive.add(worker)
        return worker

    def _stop(self) -> None:
        self._stopping.set()
        for worker in list(self._alive):
            worker.kill()
        self._alive.clear()
