"""Owns: training in two threads on two devices for as long as one likes, under changes of routes
and failing allocations, with memory watched. Needs FLAGOS_HOST_DEVICES=2.

    FLAGOS_HOST_DEVICES=2 PYTHONPATH=.. python soak.py 3600    # seconds; prints figures as JSON
"""

from __future__ import annotations

import gc
import json
import math
import random
import resource
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from out_of_memory import assert_right
from small_training import KINDS, Training

import torch_fl
from torch_fl.testing import faults

STEPS = 12  # of one round; then everything is as it was and must come out the same
WARM_UP = 0.2  # share of the time after which memory must have stopped growing
ROUTED = ("addmm.default", "mul.Tensor", "native_layer_norm", "convolution_backward", "embedding",
          "_foreach_mul_.Scalar", "cat", "bmm", "sum.dim_IntList")  # fmt: skip


def host_memory() -> float:
    """Resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


@dataclass
class Trainer:
    """One thread: rounds of steps on one device, which must be alike to the last bit."""

    index: int
    seed: int
    failing: threading.Lock
    rounds: int = 0
    steps: int = 0
    out_of_memory: int = 0
    error: BaseException | None = None
    levels: set[int] = field(default_factory=set)
    trainings: list[Training] = field(default_factory=list)

    def prepare(self) -> None:
        """Before any thread starts: a model's seed is that of all devices."""
        self.trainings = [self._training(kind, auto) for kind in KINDS for auto in (False, True)]

    def work(self, end: float) -> None:
        try:
            torch.set_num_threads(1)
            chance = random.Random(self.seed + self.index)
            trainings = self.trainings
            first: dict[int, list[float]] = {}
            kept = [training.keep() for training in trainings]
            while time.monotonic() < end:
                which = chance.randrange(len(trainings))
                training = trainings[which]
                training.restore(kept[which])
                losses = [self._step(training, chance) for _ in range(STEPS)]
                assert all(map(math.isfinite, losses)), losses
                expected = first.setdefault(which, losses)
                assert losses == expected, f"{training.kind}: {losses} were {expected}"
                training.restore(kept[which])
                del training
                if len(first) == len(trainings):
                    self.levels.add(torch.flagos.memory_allocated(self.index))
                self.rounds += 1
        except BaseException as error:
            self.error = error

    def _training(self, kind: str, autocast: bool) -> Training:
        training = Training(kind, autocast, device=f"flagos:{self.index}")
        training.step()  # makes the optimizer's state
        training.optimizer.zero_grad()
        return training

    def _step(self, training: Training, chance: random.Random) -> float:
        """One step on routes of the moment; now and then one that fails goes before."""
        self.steps += 1
        with torch_fl.routing.use(dict.fromkeys(chance.sample(ROUTED, 2), "cpu")):
            if chance.random() < 0.05 and self.failing.acquire(blocking=False):
                try:
                    self._fail(training, chance.randrange(1, 300))
                finally:
                    self.failing.release()
            return training.step()

    def _fail(self, training: Training, number: int) -> None:
        kept = training.keep()
        try:
            with faults.failing_allocation(number, device=training.device):
                training.step()
        except torch.OutOfMemoryError as error:
            assert_right(error, self.index)
            self.out_of_memory += 1
        training.restore(kept)


def _change_routes(chance: random.Random) -> None:
    """A change for the whole process, while the others call."""
    name = chance.choice(ROUTED)
    if chance.random() < 0.5:
        torch_fl.routing.set(name, chance.choice(["cpu", "boxing", "cpu, boxing"]))
    else:
        torch_fl.routing.set(name, None)
    if chance.random() < 0.1:
        torch.flagos.empty_cache()


def run(seconds: float, seed: int = 0) -> dict[str, Any]:
    """Runs for `seconds` and returns figures. Raises what went wrong in a thread."""
    assert torch.flagos.device_count() == 2, "FLAGOS_HOST_DEVICES must be 2"
    torch.manual_seed(seed)
    chance, failing = random.Random(seed), threading.Lock()
    trainers = [Trainer(index, seed, failing) for index in range(2)]
    for trainer in trainers:
        trainer.prepare()
    start = time.monotonic()
    threads = [threading.Thread(target=t.work, args=(start + seconds,)) for t in trainers]
    for thread in threads:
        thread.start()
    samples: list[tuple[float, float]] = []
    changes = 0
    while any(thread.is_alive() for thread in threads):
        time.sleep(min(0.1, seconds / 50))
        _change_routes(chance)
        changes += 1
        if changes % 10 == 0:
            samples.append((time.monotonic() - start, host_memory()))
    for thread in threads:
        thread.join()
    torch_fl.routing.reset()
    for trainer in trainers:
        if trainer.error is not None:
            raise trainer.error
        trainer.trainings.clear()
    gc.collect()
    settled = [mib for at, mib in samples if at > WARM_UP * seconds]
    half = len(settled) // 2
    return {
        "seconds": round(time.monotonic() - start, 1),
        "steps": sum(t.steps for t in trainers),
        "rounds": [t.rounds for t in trainers],
        "out of memory": sum(t.out_of_memory for t in trainers),
        "route changes": changes,
        "levels of device memory": [sorted(t.levels) for t in trainers],
        "left": [torch.flagos.memory_allocated(index) for index in range(2)],
        "host MiB": [round(mib, 1) for mib in settled[:: max(1, len(settled) // 12)]],
        "host growth MiB": round(max(settled[half:]) - max(settled[:half]), 1) if half else 0.0,
    }


if __name__ == "__main__":
    print(json.dumps(run(float(sys.argv[1]))))
