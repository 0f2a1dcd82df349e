"""Owns: one side of a row in a process of its own; it does what its parent tells it.

    python _child.py '{"workload": ..., "size": ..., "device": ..., "activate": true, "began": ...}'

One word a line comes in; one JSON object a line goes out, for the start and for each word:
`build`, `turn`, `profile`, `finish`. What libraries print goes to the standard error.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import torch
    from _workloads import Workload

Words = Mapping[str, Callable[[], dict[str, Any]]]
"""What answers each word; the last is `finish`."""

PACKAGES = ("torch-fl-core", "torch-fl-cuda", "transformers", "triton")


def versions() -> dict[str, str]:
    """Versions of what both sides may use, where it is installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


class Side:
    """The device of this process, and the workload on it."""

    def __init__(self, spec: dict[str, Any]) -> None:
        begin = time.perf_counter()
        if spec["activate"]:
            import torch_fl  # noqa: F401  (importing it makes the device)
        import torch

        self.spec = spec
        self._torch = torch
        if spec.get("threads"):
            torch.set_num_threads(spec["threads"])
        self.device: torch.device = torch.device(spec["device"])
        self._import_s = time.perf_counter() - begin
        self._workload: Workload | None = None

    @property
    def workload(self) -> Workload:
        """The workload, which `build` has made."""
        assert self._workload is not None, "build comes first"
        return self._workload

    def words(self) -> Words:
        """What its process is told."""
        return {
            "build": self.build,
            "turn": self.turn,
            "profile": self.profile,
            "finish": self.finish,
        }

    def start(self) -> dict[str, Any]:
        """The first work on the device, and how long it took to get there."""
        if self._torch.ones(2, device=self.device).sum().item() != 2:
            raise RuntimeError(f"{self.device} cannot add")
        now = time.time()
        return {
            "import_s": self._import_s,
            "start_s": now - self.spec["began"],
            "target": self._target(),
            "environment": self._environment(),
        }

    def prepare(self) -> None:
        """Imports what the workload needs: in both processes of a pair at the same time, since no
        word is waited for. What goes wrong is the answer to `build`, which imports it again."""
        import _workloads

        name = self.spec["workload"]
        if name:
            with contextlib.suppress(Exception):
                _workloads.prepare(name)

    def build(self, made: Callable[[Workload], None] | None = None) -> dict[str, Any]:
        """Builds, and warms with as many steps as the size says; `made` is given the workload
        before its first step."""
        import _workloads

        begin = time.perf_counter()
        size = self.spec["size"]
        workload = _workloads.build(self.spec["workload"], self.device, size)
        if made is not None:
            made(workload)
        workload.step()
        first = workload.result()
        for _ in range(size["warm"] - 1):
            workload.step()
        self._synchronize()
        self._workload = workload
        return {"first": first, "note": workload.note, "s": time.perf_counter() - begin}

    def turn(self) -> dict[str, Any]:
        """A turn's steps, from an empty queue to an empty queue; milliseconds per unit."""
        workload, steps = self.workload, self.spec["size"]["steps"]
        gc.collect()
        gc.disable()
        self._synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            workload.step()
        self._synchronize()
        seconds = time.perf_counter() - begin
        gc.enable()
        return {"ms": seconds * 1e3 / (steps * workload.units)}

    def profile(self) -> dict[str, Any]:
        """What `_profiling` finds in a turn's steps."""
        import _profiling

        size = self.spec["size"]
        steps = size.get("profiled", min(size["steps"], 5))
        return _profiling.profile(self.workload.step, steps, self._target(), self._synchronize)

    def finish(self) -> dict[str, Any]:
        """The result of the last step, the peak of memory, and the workload's own reports."""
        peak, last = self._peak_bytes(), self.workload.result()
        reports = self.workload.reports() if self.workload.reports else {}
        activated = any(name.partition(".")[0] == "torch_fl" for name in sys.modules)
        return {"last": last, "peak_bytes": peak, "reports": reports, "activated": activated}

    def peak_of_a_step(self) -> int | None:
        """The peak of memory in one more step, with all that the process holds; as `finish` has it
        of the whole process."""
        gc.collect()
        if self.device.type != "cpu":
            self._torch.get_device_module(self.device).reset_peak_memory_stats()
        self.workload.step()
        self._synchronize()
        return self._peak_bytes()

    def _synchronize(self) -> None:
        if self.device.type != "cpu":
            self._torch.get_device_module(self.device).synchronize()

    def _peak_bytes(self) -> int | None:
        if self.device.type == "cpu":
            return None  # PyTorch does not count there
        return int(self._torch.get_device_module(self.device).max_memory_allocated())

    def _target(self) -> str:
        """The type of the device whose kernels run."""
        if not self.spec["activate"]:
            return self.device.type
        from torch_fl.plugins import selection

        return selection.current().target or self.device.type

    def _environment(self) -> dict[str, str]:
        torch = self._torch
        found = {"python": platform.python_version(), "torch": torch.__version__, **versions()}
        if self._target() == "cuda" and not self.spec["activate"]:
            properties = torch.cuda.get_device_properties(0)
            found |= {
                "device": properties.name,
                "device memory": f"{properties.total_memory / 2**30:.0f} GiB",
                "CUDA": str(torch.version.cuda),
                "cuDNN": str(torch.backends.cudnn.version()),
            }
        return found


def serve(side: Side, words: Words, lines: TextIO, say: Callable[[dict[str, Any]], None]) -> None:
    """Answers each line until the last one, `finish`."""
    say(side.start())
    side.prepare()
    for line in lines:
        word = line.strip()
        say(words[word]())
        if word == "finish":
            return


def main(words: Callable[[Side], Words] = Side.words) -> int:
    """Answers `words` of the side. The exit status is 1 after an error, which is also the last
    answer."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        side = Side(json.loads(sys.argv[1]))
        serve(side, words(side), sys.stdin, say)
    except NotImplementedError as error:
        say({"unavailable": str(error)})
        return 1
    except Exception as error:
        traceback.print_exc()
        say({"error": f"{type(error).__name__}: {error}"[:1000]})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
