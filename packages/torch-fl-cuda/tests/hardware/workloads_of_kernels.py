"""Owns: what a small piece of work makes the GPU do: its kernels by name, and its peak memory.

The same code runs in a process that has flagos and in one that does not; each prints a line of JSON
for each piece of work. The pieces are in workloads_of_layers.py and workloads_of_operators.py.
"""

from __future__ import annotations

import contextlib
import gc
import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

Step = Callable[[], object]
Build = Callable[[str], Step]
Operator = Callable[..., torch.Tensor]

# What the tracing library says of itself, between the kernels.
_TRACING = re.compile(
    r"Activity Buffer|Buffer Flush|Lazy Function|Instrumentation|Command Buffer|.* Sync$"
)


@dataclass(frozen=True)
class Work:
    """`build` makes, on a device, a step that can be repeated.

    cold: the first step counts, whose kernels are compared as a set: it tries algorithms, in a
    number that depends on time. refused: CUDA refuses it, and the error's text is compared.
    spares: kernels, copies or fills of which flagos may have fewer.
    """

    build: Build
    cold: bool = False
    refused: bool = False
    spares: frozenset[str] = frozenset()


WORK: dict[str, Work] = {}


def work(
    name: str, *, cold: bool = False, refused: bool = False, spares: Iterable[str] = ()
) -> Callable[[Build], Build]:
    """Lists what it decorates under `name`."""

    def listed(build: Build) -> Build:
        assert name not in WORK, name
        WORK[name] = Work(build, cold, refused, frozenset(spares))
        return build

    return listed


def random(
    device: str, *shape: int, dtype: torch.dtype = torch.float32, grad: bool = True
) -> torch.Tensor:
    """A leaf with numbers that every device gets alike, since the CPU draws them."""
    return torch.randn(shape).to(device, dtype).requires_grad_(grad)


def with_backward(run: Callable[[], torch.Tensor], *leaves: torch.Tensor) -> Step:
    """A step of `run` and of its backward, which leaves no gradients behind."""

    def step() -> object:
        result = run()
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        return torch.autograd.grad(result, wanted, torch.ones_like(result))

    return step


def of_operator(
    device: str,
    operator: Operator,
    *shapes: tuple[int, ...],
    dtype: torch.dtype = torch.float32,
    grad: bool = True,
    **options: Any,
) -> Step:
    """A step of `operator` on leaves of these shapes and, with `grad`, of its backward."""
    tensors = [random(device, *shape, dtype=dtype, grad=grad) for shape in shapes]

    def run() -> torch.Tensor:
        return operator(*tensors, **options)

    return with_backward(run, *tensors) if grad else run


def list_operator(name: str, operator: Operator, *shapes: tuple[int, ...], **options: Any) -> None:
    """Lists `of_operator` under `name`."""
    work(name)(lambda device: of_operator(device, operator, *shapes, **options))


def of_module(module: torch.nn.Module, run: Callable[[], Any]) -> Step:
    """A step of `run`, a loss or a tensor, and of the backward into the module's parameters."""

    def step() -> None:
        module.zero_grad(set_to_none=True)
        run().float().sum().backward()

    return step


@contextlib.contextmanager
def setting(owner: Any, name: str, value: object) -> Iterator[None]:
    """A switch of PyTorch's at `value` for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    """Deterministic algorithms for a while."""
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def _profiled(step: Step, *activities: ProfilerActivity) -> Iterator[Any]:
    torch.cuda.synchronize()
    with profile(activities=activities) as found:
        step()
        torch.cuda.synchronize()
    yield from found.events() or []


def kernels(step: Step) -> dict[str, int]:
    """How often each kernel, copy and fill ran on the GPU in a step.

    PyTorch's profiler gives them to the device PrivateUse1 where one is in use.
    """
    seen: Counter[str] = Counter()
    for event in _profiled(step, ProfilerActivity.CUDA):
        on_gpu = event.device_type != DeviceType.CPU and not event.is_user_annotation
        if on_gpu and not _TRACING.match(event.name):
            seen[event.name] += 1
    return dict(seen)


def callers(step: Step) -> dict[str, list[str]]:
    """The operators that had a kernel, copy or fill run in a step, outermost first, by its name."""
    seen: dict[str, list[str]] = {}
    for event in _profiled(step, ProfilerActivity.CPU, ProfilerActivity.CUDA):
        for kernel in event.kernels:
            seen.setdefault(kernel.name, []).append(" > ".join(_lineage(event)))
    return seen


def _lineage(event: Any) -> list[str]:
    names: list[str] = []
    while event is not None:
        names.insert(0, event.name)
        event = event.cpu_parent
    return names


def peak(step: Step) -> int:
    """Most bytes that a step takes from CUDA's pool beyond what was taken before."""
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def measure(device: str, piece: Work) -> dict[str, Any]:
    """`{"kernels", "peak", "error"}` of a piece of work on "cuda" or "flagos"."""
    torch.manual_seed(0)
    said: dict[str, Any] = {"kernels": {}, "peak": None, "error": None}
    try:
        step = piece.build(device)
        if not piece.cold:
            step()
            step()
            said["peak"] = peak(step)
        said["kernels"] = kernels(step)
    except Exception as error:
        text = re.sub(r"wrapper_[A-Za-z]+_", "wrapper_", str(error))
        said["error"] = f"{type(error).__name__}: {text}".replace("flagos", "cuda")
    return said


def explain(device: str, piece: Work) -> dict[str, Any]:
    """`{"callers"}` of a piece of work, or what was in the way: an explanation is worth no failure.

    On its own, since this kind of profile can fail where `kernels` does not.
    """
    torch.manual_seed(0)
    try:
        step = piece.build(device)
        if not piece.cold:
            step()
            step()
        return {"callers": callers(step)}
    except Exception as error:
        return {"callers": {}, "unexplained": f"{type(error).__name__}: {error}"[:300]}


def main(
    device: str,
    names: Sequence[str],
    find: Callable[[str, Work], dict[str, Any]] = measure,
) -> None:
    """Prints a line of JSON for each name, at once: the lines of a process that dies remain."""
    warnings.simplefilter("ignore")
    kernels(lambda: torch.ones(8, device=device) + 1)  # the first profile starts the tracing
    for name in names:
        print(json.dumps({"name": name, **find(device, WORK[name])}), flush=True)
        gc.collect()
