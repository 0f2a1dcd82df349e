"""Owns: both sides of a row in one process, which has flagos; they compute on the same parameters.

    python _both_sides.py '{..., "device": "flagos", "native": "cuda"}'

It is started and told as `_child.py` is, but for the turns, `turn native` and `turn device`. What
it answers to `build` and `finish` has a part for each side.
"""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING, Any

from _child import Side, Words, main

if TYPE_CHECKING:
    from _workloads import Workload
    from torch import Tensor, nn


def as_native(tensor: Tensor) -> Tensor:
    """A tensor of the device as the native side's, in the same memory."""
    if tensor.device.type != "flagos":
        return tensor.detach()  # native against itself
    from torch_fl import interop

    return interop.as_target(tensor)


def share(native: nn.Module, model: nn.Module) -> None:
    """Gives a native model the parameters and buffers of the same one on the device."""
    own, others = (itertools.chain(each.parameters(), each.buffers()) for each in (native, model))
    for tensor, other in zip(own, others, strict=True):
        tensor.data = as_native(other)


class Both:
    """The two sides; `device` is one that has not been built yet."""

    def __init__(self, device: Side) -> None:
        native = Side({**device.spec, "device": device.spec["native"]})
        self._sides = {"native": native, "device": device}
        self._peaks: dict[str, int | None] = {}

    def words(self) -> Words:
        """What the process is told."""
        turns = {f"turn {name}": side.turn for name, side in self._sides.items()}
        return {"build": self.build, **turns, "finish": self.finish}

    def build(self) -> dict[str, Any]:
        """Builds and warms both; finds whether they make the same, bit for bit, and the peak of
        memory in a step of each."""
        device, native = self._sides["device"], self._sides["native"]
        said = {"device": device.build(), "native": native.build(self._share)}
        made, natively = device.workload.output, native.workload.output
        assert made is not None
        assert natively is not None
        equal = as_native(made()).equal(natively())
        self._peaks = {name: side.peak_of_a_step() for name, side in self._sides.items()}
        return {**said, "equal": equal}

    def finish(self) -> dict[str, Any]:
        """What both sides say at the end, each with the peak of its step."""
        ends = {
            name: {**side.finish(), "peak_bytes": self._peaks[name]}
            for name, side in self._sides.items()
        }
        return {**ends, "activated": ends["device"]["activated"]}

    def _share(self, native: Workload) -> None:
        model = self._sides["device"].workload.model
        assert model is not None
        assert native.model is not None
        share(native.model, model)


if __name__ == "__main__":
    sys.exit(main(lambda side: Both(side).words()))
