"""Owns: what a graph of the smoke set is, and the register of them."""

from __future__ import annotations

import importlib
import pkgutil
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

__all__ = ["Graph", "Place", "Program", "all_graphs", "before", "eagerly", "graph"]


def eagerly(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that no compiler traces into; what it calls may be compiled."""
    left_alone: Callable[..., Any] = torch.compiler.disable(function, recursive=False)
    return left_alone


def before(release: str, reason: str) -> str:
    """`reason`, where PyTorch is older than a release such as "2.13", and nothing otherwise."""
    numbers = [torch.__version__.split(".")[:2], release.split(".")]
    mine, theirs = (tuple(int(part) for part in one) for one in numbers)
    return reason if mine < theirs else ""


class Place:
    """Where a program is built: its devices and its data, the same at each building.

    `device`: its name, such as "flagos". Data is made on the CPU from the graph's name.
    """

    def __init__(self, device: str, name: str) -> None:
        self.type = torch.device(device).type
        self.device = torch.device(device)
        self._generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))

    @property
    def module(self) -> Any:
        """The device's module, such as torch.flagos."""
        return torch.get_device_module(self.type)

    def numbered(self, index: int) -> torch.device:
        """One of several devices; the CPU has no numbers."""
        return self.device if self.type == "cpu" else torch.device(self.type, index)

    def normal(
        self,
        *shape: int,
        dtype: torch.dtype = torch.float32,
        device: Any = None,
        grad: bool = False,
    ) -> torch.Tensor:
        """Normally distributed numbers of a float or complex type; a leaf."""
        made = torch.randn(shape, generator=self._generator, dtype=_wide(dtype)).to(dtype)
        return made.to(device or self.device).requires_grad_(grad)

    def integers(
        self, *shape: int, low: int = 0, high: int = 10, dtype: torch.dtype = torch.int64
    ) -> torch.Tensor:
        """Integers, `low` included and `high` not."""
        made = torch.randint(low, high, shape, generator=self._generator)
        return made.to(dtype).to(self.device)

    def bools(self, *shape: int) -> torch.Tensor:
        """True and False, as often."""
        return self.integers(*shape, high=2).bool()

    def layer(self, make: Callable[[], torch.nn.Module]) -> Any:
        """A module on the device, its parameters drawn from the data's generator."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(1 << 30, (), generator=self._generator)))
            module = make()
        return module.to(self.device)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype in (torch.float64, torch.complex64, torch.complex128) else torch.float32


@dataclass
class Program:
    """A function, called once with each of `calls`.

    `state`: what it changes or learns besides its arguments: modules, tensors. `gradients`: the
    result's gradients are taken for leaves among the arguments and in `state`. `random`: the
    compiler draws numbers of its own, so results are compared with themselves under the same seed.
    `raises`: what both must raise. `options`: of torch.compile. `settings`: of
    torch._inductor.config for the compiled run, its backward pass included.
    """

    function: Callable[..., Any]
    calls: Sequence[Sequence[Any]]
    state: Sequence[Any] = ()
    gradients: bool = False
    random: bool = False
    dynamic: bool | None = None
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    raises: type[BaseException] | None = None
    tolerance: float = 0.0


@dataclass(frozen=True)
class Graph:
    """A named program. `devices`: how many it needs. `accelerator`: it has no meaning on "cpu".
    `slow`: left out of quick runs. `limit`: why PyTorch itself, of this version, may do it wrong on
    any device; empty where it does not."""

    name: str
    build: Callable[[Place], Program]
    devices: int = 1
    accelerator: bool = False
    slow: bool = False
    limit: str = ""


_GRAPHS: dict[str, Graph] = {}


def graph(
    name: str,
    *,
    devices: int = 1,
    accelerator: bool = False,
    slow: bool = False,
    limit: str = "",
) -> Callable[[Callable[[Place], Program]], Callable[[Place], Program]]:
    """Registers the decorated builder under "theme/name"."""

    def register(build: Callable[[Place], Program]) -> Callable[[Place], Program]:
        if name in _GRAPHS:
            raise ValueError(f"there are two graphs {name!r}")
        _GRAPHS[name] = Graph(name, build, devices, accelerator, slow, limit)
        return build

    return register


def all_graphs() -> dict[str, Graph]:
    """Every graph by its name, in a fixed order."""
    from torch_fl.testing.compiled import graphs

    for found in pkgutil.iter_modules(graphs.__path__):
        importlib.import_module(f"{graphs.__name__}.{found.name}")
    return dict(sorted(_GRAPHS.items()))
