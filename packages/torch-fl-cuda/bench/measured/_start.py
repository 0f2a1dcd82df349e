"""Owns: a process that starts, runs backward on a device, and exits while its queue is not empty.

    python _start.py flagos

It prints `right` or `wrong`. The numbers are small whole ones, exact in every precision that a
device may take for float32.
"""

from __future__ import annotations

import sys


def main(device: str) -> None:
    """The last backward is given to the device and not waited for."""
    if device.partition(":")[0] == "flagos":
        import torch_fl  # noqa: F401  (importing it makes the device)
    import torch

    def gradient(place: str) -> torch.Tensor:
        x = (torch.arange(64 * 64, dtype=torch.float32) % 7 - 3).view(64, 64)
        weight = (torch.arange(64 * 64, dtype=torch.float32) % 5 - 2).view(64, 64)
        weight = weight.to(place).requires_grad_()
        (x.to(place) @ weight).relu().sum().backward()
        assert weight.grad is not None
        return weight.grad

    same = torch.equal(gradient(device).cpu(), gradient("cpu"))
    print("right" if same else "wrong", flush=True)
    for _ in range(5):
        gradient(device)


if __name__ == "__main__":
    main(sys.argv[1])
