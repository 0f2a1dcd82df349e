"""Owns: `torch-fl demo`: a small CNN learns the 1,797 handwritten digits of scikit-learn.

It succeeds when the held-out digits are read well and nothing fell back to the CPU.
"""

from __future__ import annotations

import argparse
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_fl.cli.main import CommandError
from torch_fl.cli.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from torch import nn

    from torch_fl.routing import Report

GOAL = 0.97  # share of the held-out digits that must be read correctly
HELD_OUT = 0.2  # share of every digit's pictures that is kept from training
TABLE_ROWS = 15


@dataclass(frozen=True)
class Digits:
    """Pictures of 8 × 8 pixels, float32 [N, 1, 8, 8] in 0..1, and their digits, int64 [N]."""

    images: torch.Tensor
    labels: torch.Tensor

    def to(self, device: torch.device) -> Digits:
        """Copies on `device`."""
        return Digits(self.images.to(device), self.labels.to(device))


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, but got {value}")
    return value


def _seed(text: str) -> int:
    value = int(text)
    if not 0 <= value < 2**64:
        raise argparse.ArgumentTypeError(f"must be in [0, 2**64), but got {value}")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `torch-fl demo`."""
    parser.add_argument("--device", default="flagos", help="PyTorch device (default: flagos)")
    parser.add_argument("--epochs", type=_positive, default=20, help="default: 20")
    parser.add_argument("--batch-size", type=_positive, default=64, help="default: 64")
    parser.add_argument("--seed", type=_seed, default=0, help="of all randomness (default: 0)")


def load_digits(seed: int) -> tuple[Digits, Digits]:
    """Digits to train with and held-out ones, every digit in both in the same proportion.

    Args:
        seed: which pictures are held out.

    Raises:
        CommandError: scikit-learn is missing.
    """
    import torch

    try:
        from sklearn import datasets
    except ImportError as error:
        raise CommandError(
            f"scikit-learn, which ships the digits, cannot be imported ({error}). "
            "Install it: pip install scikit-learn"
        ) from error

    data = datasets.load_digits()
    images = torch.from_numpy(data.images).float().div(16).unsqueeze(1)
    labels = torch.from_numpy(data.target).long()
    generator = torch.Generator().manual_seed(seed)
    held_out = torch.zeros(len(labels), dtype=torch.bool)
    for digit in range(10):
        of_digit = (labels == digit).nonzero().squeeze(1)
        shuffled = of_digit[torch.randperm(len(of_digit), generator=generator)]
        held_out[shuffled[: round(HELD_OUT * len(of_digit))]] = True
    return (
        Digits(images[~held_out], labels[~held_out]),
        Digits(images[held_out], labels[held_out]),
    )


def make_model() -> nn.Module:
    """A CNN of 38,378 parameters: [N, 1, 8, 8] to scores [N, 10]."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def train(model: nn.Module, digits: Digits, epochs: int, batch_size: int, seed: int) -> None:
    """Fit `model`, which is on the device of `digits`, and show the progress."""
    import torch
    from torch.nn import functional

    device = digits.images.device
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    # On the CPU, so that the batches are the same on every device.
    generator = torch.Generator().manual_seed(seed)
    starts = range(0, len(digits.labels), batch_size)
    last_loss = ""
    model.train()
    with Progress(epochs * len(starts)) as progress:
        for epoch in range(epochs):
            order = torch.randperm(len(digits.labels), generator=generator).to(device)
            for number, start in enumerate(starts, start=1):
                batch = order[start : start + batch_size]
                optimizer.zero_grad()
                scores = model(digits.images[batch])
                loss = functional.cross_entropy(scores, digits.labels[batch])
                loss.backward()
                optimizer.step()
                if number == len(starts):  # once an epoch, because reading the loss waits for it
                    last_loss = f"  loss {loss.item():.4f}"
                done = epoch * len(starts) + number
                progress.update(done, f"epoch {epoch + 1}/{epochs}{last_loss}")


def count_correct(model: nn.Module, digits: Digits) -> int:
    """How many of `digits` the model reads correctly."""
    import torch

    model.eval()
    with torch.inference_mode():
        return int((model(digits.images).argmax(dim=1) == digits.labels).sum().item())


def _device(name: str) -> torch.device:
    import torch

    if name.partition(":")[0] == "flagos":
        from torch_fl.cli.device import activate

        activate()
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise CommandError(f"the device {name!r} cannot be used: {reason}") from error
    return device


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let host kernels run on one thread.

    These pictures are too small to share, and on a busy machine threads that spin while they wait
    for one another made the training take 41 s instead of 8 s (2 cores, load 5).
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _recorder(device: torch.device) -> AbstractContextManager[Report | None]:
    if device.type != "flagos":
        return nullcontext()
    from torch_fl import routing

    return routing.report()


def run(arguments: argparse.Namespace) -> int:
    """Train, evaluate, report; 0 when the goal was reached and nothing fell back, else 1."""
    import torch

    device = _device(arguments.device)
    torch.manual_seed(arguments.seed)
    training, held_out = load_digits(arguments.seed)
    print(
        f"Training on {device}: {len(training.labels)} digits, {arguments.epochs} epochs, "
        f"batches of {arguments.batch_size}; {len(held_out.labels)} digits held out"
    )
    start = time.monotonic()
    with _one_thread(), _recorder(device) as report:
        model = make_model().to(device)
        train(model, training.to(device), arguments.epochs, arguments.batch_size, arguments.seed)
        correct = count_correct(model, held_out.to(device))
    accuracy = correct / len(held_out.labels)
    print(f"accuracy: {100 * accuracy:.1f} %")
    print(f"{correct} of {len(held_out.labels)} held-out digits, {time.monotonic() - start:.1f} s")

    failures = []
    if accuracy < GOAL:
        failures.append(
            f"at least {100 * GOAL:.0f} % of the held-out digits must be read correctly; "
            f"{arguments.epochs} epochs may be too few, or a kernel computes wrongly "
            "(compare with --device cpu)"
        )
    if report is None:
        print(f"What ran where is recorded on flagos only, so there is no table for {device}.")
    else:
        failures += _show(report, device)
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


def _show(report: Report, device: torch.device) -> list[str]:
    """Print what ran where; returns what is wrong with it."""
    from torch_fl import flagos

    print(f"\n{report.table(limit=TABLE_ROWS)}\n")
    print(f"device: {flagos.get_device_name(device)}")
    print(f"peak memory: {flagos.max_memory_allocated(device) / 2**20:.1f} MiB")
    if not report.rows:
        return [f"no operator was seen on {device}, though a model was trained"]
    if report.fallbacks:
        names = ", ".join(f"{row.operator} ({row.calls} calls)" for row in report.fallbacks)
        return [f"ran on the CPU fallback: {names}"]
    print("Nothing ran on the CPU fallback.")
    return []
