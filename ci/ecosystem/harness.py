"""Owns: what the ecosystem's scripts share: cases, comparing with the CPU, and the result file.

A case is a function. It fails by raising, when its results differ from the CPU's with the same
seeds, and when an operator fell back to the CPU that it does not name.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

import torch_fl
from torch_fl.plugins import selection

DEVICE = "flagos"
Run = Callable[[str], Any]


@dataclass
class Outcome:
    """How one case went: `state` is "works", "works with note" or "does not work"; `expected` is
    whether the script said so."""

    case: str
    state: str
    note: str
    seconds: float
    expected: bool


@dataclass(frozen=True)
class Case:
    title: str
    run: Callable[[], None]
    fallbacks: tuple[str, ...]
    broken: str


@dataclass
class _Script:
    cases: list[Case] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


_script = _Script()


def case(
    title: str, fallbacks: Sequence[str] = (), broken: str = ""
) -> Callable[[Callable[[], None]], None]:
    """Adds a function to the script's cases.

    `fallbacks` may run on the CPU, which is noted. `broken` says why it is known not to work: then
    failing fails nothing, and not failing does.
    """

    def add(run: Callable[[], None]) -> None:
        _script.cases.append(Case(title, run, tuple(fallbacks), broken))

    return add


def note(text: str) -> None:
    """Something that a reader of the table has to know of the case that runs."""
    if text not in _script.notes:
        _script.notes.append(text)


def compare(run: Run, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Runs `run("cpu")` and `run("flagos")` with the same seeds and compares what they return.

    Tensors that the second returns have to be on flagos; integers must be equal.
    """
    results = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(0)
        results.append(run(device))
    expected, found = results
    for tensor in filter(torch.is_tensor, pytree.tree_leaves(found)):
        assert tensor.device.type == DEVICE, f"a result is on {tensor.device}, not on {DEVICE}"
    moved = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().cpu(), found)
    plain = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach(), expected)
    torch.testing.assert_close(moved, plain, rtol=rtol, atol=atol)


def train(model: torch.nn.Module, loss_of: Callable[[], torch.Tensor], steps: int = 2) -> list[Any]:
    """Some steps of AdamW; the losses, then the first gradients of the last step."""
    model.train()
    torch.manual_seed(1)  # making the model drew numbers on the CPU
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert gradients, "the backward pass made no gradient"
    return [*losses, *gradients[:4]]


def main(distributions: Sequence[str]) -> None:
    """Runs the script's cases and writes the result file, the script's one argument."""
    warnings.simplefilter("ignore")
    outcomes = [_outcome(each) for each in _script.cases]
    versions = {name: importlib.metadata.version(name) for name in ("torch", *distributions)}
    plugin = selection.current().plugin
    result = {
        "versions": versions,
        "python": platform.python_version(),
        "plugin": plugin.name if plugin else "",
        "cases": [asdict(each) for each in outcomes],
    }
    text = json.dumps(result, indent=1)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text + "\n", encoding="utf-8")
    failed = sum(not each.expected for each in outcomes)
    print(f"{len(outcomes) - failed} passed, {failed} failed", flush=True)


def _outcome(each: Case) -> Outcome:
    _script.notes.clear()
    start = time.monotonic()
    error: Exception | None = None
    try:
        with torch_fl.routing.report() as report:
            each.run()
        _look_for_fallbacks(report, each.fallbacks)
    except Exception as raised:
        error = raised
        if not each.broken:
            traceback.print_exc()
        note(f"{type(error).__name__}: {_first_line(str(error))}")
    seconds = time.monotonic() - start
    state = "does not work" if error else "works with note" if _script.notes else "works"
    expected = (error is not None) == bool(each.broken)
    if error and each.broken:
        note(each.broken)
    elif each.broken:
        print(f"  {each.title}: it works now; take the mark `broken` away", flush=True)
    text = "; ".join(_script.notes)
    print(f"  {each.title}: {state} ({seconds:.1f} s) {text}", flush=True)
    return Outcome(each.title, state, text, round(seconds, 1), expected)


def _look_for_fallbacks(report: Any, known: Sequence[str]) -> None:
    """Raises AssertionError for operators that fell back to the CPU and are not `known`."""
    assert report.rows, "nothing ran on flagos"
    fallen = sorted({row.operator for row in report.fallbacks})
    if strange := [name for name in fallen if name not in known]:
        raise AssertionError(f"fell back to the CPU: {', '.join(strange)}")
    if fallen:
        note(f"on the CPU: {', '.join(fallen)}")


def _first_line(text: str) -> str:
    line = " ".join(text.strip().split("\n\n")[0].split())
    line = re.sub(r"(/[\w.-]+)+/", "", line)  # a path says where this machine keeps things
    return line[:300]
