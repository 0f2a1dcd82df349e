"""Owns: a process in which threads on streams of their own share memory, and look for wrong values.

    python _canaries.py '{"device": "flagos", "seconds": 10, "largest": 1048576, "matrix": 256,
                          "careless": false}'

Prints JSON: `checked` and `wrong` values, `handed` tensors. Each thread keeps *canaries*, blocks of
one known value, while it allocates, computes and frees around them; memory that was reused while
something in a queue still used it shows in them. Threads hand each other tensors, ordered by an
event and `record_stream`, and free them at once. `careless` leaves both out, as a control: where
streams are asynchronous, wrong values are then expected.
"""

from __future__ import annotations

import json
import queue
import random
import sys
import threading
import time
from typing import Any

KEPT = 8
BETWEEN_WAITS = 64
Handed = tuple[Any, int, Any]
"""A tensor, the value that fills it, and the event after which it does."""


class Worker:
    """One thread's part."""

    def __init__(self, spec: dict[str, Any], seed: int, inbox: Any, outbox: Any) -> None:
        import torch

        self._torch, self._spec = torch, spec
        self._device = torch.device(spec["device"])
        self._module = torch.get_device_module(self._device)
        self._rng = random.Random(seed)
        self._inbox, self._outbox = inbox, outbox
        self.checked = self.handed = self.wrong = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        """Works for the seconds of the spec; an error is kept for the caller."""
        try:
            self._stream = self._module.Stream(self._device)
            with self._module.stream(self._stream):
                self._work()
        except BaseException as error:
            self.error = error

    def _work(self) -> None:
        torch, rng = self._torch, self._rng
        width = self._spec["matrix"]
        self._total = torch.zeros((), dtype=torch.int64, device=self._device)
        ones = torch.ones(width, width, device=self._device)
        canaries = [self._filled() for _ in range(KEPT)]
        end = time.monotonic() + self._spec["seconds"]
        rounds = 0
        while time.monotonic() < end:
            value = rng.randrange(1, 8)
            product = torch.full((width, width), float(value), device=self._device) @ ones
            self._check(product, value * width)
            del product
            place = rng.randrange(KEPT)
            self._check(*canaries[place])
            canaries[place] = self._filled()
            self._hand_over()
            self._take(ones)
            rounds += 1
            if rounds % BETWEEN_WAITS == 0:  # or the host would run seconds ahead
                self._stream.synchronize()
        for canary in canaries:
            self._check(*canary)
        self._stream.synchronize()
        self.wrong = int(self._total.item())

    def _filled(self) -> tuple[Any, int]:
        value = self._rng.randrange(1, 1000)
        size = self._rng.randrange(1, self._spec["largest"])
        return self._torch.full((size,), float(value), device=self._device), value

    def _check(self, tensor: Any, value: int) -> None:
        self._total += (tensor != value).sum()
        self.checked += tensor.numel()

    def _hand_over(self) -> None:
        if self._outbox.qsize() >= KEPT:
            return
        tensor, value = self._filled()
        event = self._module.Event()
        event.record(self._stream)
        self._outbox.put((tensor, value, event))

    def _take(self, ones: Any) -> None:
        try:
            tensor, value, event = self._inbox.get_nowait()
        except queue.Empty:
            return
        if not self._spec["careless"]:
            self._stream.wait_event(event)
            tensor.record_stream(self._stream)
        for _ in range(4):  # so that this queue is behind the one that the memory goes back to
            ones @ ones
        self._check(tensor, value)
        self.handed += 1


def main(spec: dict[str, Any]) -> int:
    """The exit status is 1 if a thread ended with an error."""
    if spec["device"].partition(":")[0] == "flagos":
        import torch_fl  # noqa: F401  (importing it makes the device)
    boxes: list[queue.Queue[Handed]] = [queue.Queue(), queue.Queue()]
    workers = [Worker(spec, seed, boxes[seed], boxes[1 - seed]) for seed in range(2)]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for worker in workers:
        if worker.error is not None:
            print(f"{type(worker.error).__name__}: {worker.error}", file=sys.stderr)
    names = ("checked", "wrong", "handed")
    print(json.dumps({name: sum(getattr(worker, name) for worker in workers) for name in names}))
    return int(any(worker.error is not None for worker in workers))


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
