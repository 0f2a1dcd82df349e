"""Owns: the two sides of a row, and the processes that they run in.

The native side runs without activation: PyTorch's autoload of backends is off and torch_fl is not
imported, so that it is what PyTorch does without this project. Only where both sides are in one
process (`Row.one_process`) it works beside flagos.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MEASURED = Path(__file__).parent / "measured"
"""The programs of the processes that are measured. They have a folder of their own because that is
where their imports are looked for first: beside `cuda.py` PyTorch would not find NVIDIA's package
`cuda`."""
CHILD = MEASURED / "_child.py"


class ChildError(RuntimeError):
    """A child process failed, died, or took too long."""


class Answer(dict[str, Any]):
    """What a process has answered; one that lacks what it must have is the process's failure."""

    def __missing__(self, key: str) -> Any:
        raise ChildError(f"an answer says nothing of {key!r}: {dict(self)}"[:500])


class UnavailableError(RuntimeError):
    """The side cannot have this: its own words say why."""


@dataclass(frozen=True)
class Side:
    """`native` or `device`: on which device it works and in what environment."""

    name: str
    device: str
    activate: bool
    target: str
    """The type of the device whose kernels must run."""
    program: Path | None = None
    """What its processes run: `CHILD`, unless it is another one that speaks as that does."""

    native: str = ""
    """The device that its process works on natively as well, for the other side; else nothing."""

    cores: frozenset[int] | None = None
    """The processors of its processes; None: all."""

    def environment(self) -> dict[str, str]:
        """The variables of its processes."""
        variables = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        variables.pop("FLAGOS_PLUGIN", None)
        if self.activate:
            # By name: where it cannot be used the device's first use says why, and no other
            # backend is measured in its place.
            variables["FLAGOS_PLUGIN"] = "host" if self.target == "cpu" else self.target
        if self.target == "cpu":
            variables["OMP_NUM_THREADS"] = "1"
        return variables


def sides(native: str, device: str) -> tuple[Side, Side]:
    """The native side and the device's."""
    target = native.partition(":")[0]
    own = device.partition(":")[0] == "flagos"
    return Side("native", native, False, target), Side("device", device, own, target)


def environment(native: Side, device: Side, deadline: float) -> dict[str, str]:
    """Versions and devices as both sides see them. Raises ChildError where one does not start."""
    with Child(native, "", {}) as one, Child(device, "", {}) as other:
        return {**other.started(deadline)["environment"], **one.started(deadline)["environment"]}


def answer_of(text: str) -> Answer:
    """The JSON object that a process has written. Raises ChildError where it is none."""
    try:
        found = json.loads(text, object_hook=Answer)
    except ValueError:
        found = None
    if not isinstance(found, Answer):
        raise ChildError(f"an answer is no JSON object: {text[:300]!r}")
    return found


class Child:
    """A process that runs `_child.py`. Use it in a `with` block: it leaves nothing behind.

    `builders` is the number of processes that build at the same time and share the machine.
    """

    def __init__(
        self, side: Side, workload: str, size: dict[str, Any], *, builders: int = 2
    ) -> None:
        self.side = side
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        spec = {
            "workload": workload,
            "size": size,
            "device": side.device,
            "native": side.native,
            "activate": side.activate,
            "threads": 1 if side.target == "cpu" else None,
            "builders": builders,
            "began": time.time(),
        }
        self._process = subprocess.Popen(
            [sys.executable, str(side.program or CHILD), json.dumps(spec)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=side.environment(),
        )
        if side.cores:
            os.sched_setaffinity(self._process.pid, side.cores)  # its threads are all to come
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._words, self._answers = self._process.stdin, self._process.stdout
        self._read = b""

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._words.close()
        self._answers.close()
        self._errors.close()

    def started(self, deadline: float) -> dict[str, Any]:
        """What the child says when its device has worked for the first time."""
        found = self.answer("its start", deadline)
        if found["target"] != self.side.target:
            raise ChildError(
                f"{self.side.device} runs {found['target']} kernels, not {self.side.target}'s: "
                "the two sides cannot be compared. `torch-fl doctor` says which plugin is used."
            )
        return found

    def ask(self, word: str, deadline: float) -> dict[str, Any]:
        """One word to the child and its answer. Raises ChildError and UnavailableError."""
        self.tell(word)
        return self.answer(word, deadline)

    def tell(self, word: str) -> None:
        """One word to the child, whose `answer` is to be asked for before the next one."""
        try:
            self._words.write(f"{word}\n".encode())
            self._words.flush()
        except BrokenPipeError:
            pass  # it is dead; reading its answer says so

    def finished(self, deadline: float) -> dict[str, Any]:
        """The child's last answer; a child that does not end well after it is an error too."""
        found = self.ask("finish", deadline)
        try:
            status = self._process.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise ChildError(f"the {self.side.name} process did not end") from None
        if status != 0:
            raise ChildError(f"the {self.side.name} process ended with {status}: {self._said()}")
        if found["activated"] is not self.side.activate:
            raise ChildError(f"torch_fl and the {self.side.name} side: {found['activated']}")
        return found

    def answer(self, what: str, deadline: float) -> dict[str, Any]:
        """The next line that the child says. Raises ChildError and UnavailableError."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            while b"\n" not in self._read:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise ChildError(f"{self.side.name}: {what} took too long")
                chunk = os.read(self._answers.fileno(), 1 << 16)
                if not chunk:
                    status = self._process.wait()
                    raise ChildError(
                        f"the {self.side.name} process died in {what} with status {status}: "
                        f"{self._said()}"
                    )
                self._read += chunk
        line, _, self._read = self._read.partition(b"\n")
        found = answer_of(line.decode(errors="replace"))
        if "unavailable" in found:
            raise UnavailableError(found["unavailable"])
        if "error" in found:
            raise ChildError(f"{self.side.name}, {what}: {found['error']}\n{self._said()}")
        return found

    def _said(self) -> str:
        """The end of what the child wrote to its standard error."""
        self._errors.seek(0)
        return self._errors.read()[-1500:].strip()
