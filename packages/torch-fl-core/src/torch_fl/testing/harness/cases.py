"""Owns: what a suite is made of: cases in passes, and how many of them each tier compares.

A case is one call that can be made on either side. Which cases count is decided later: those
that stock CPU carries out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch

from .movers import Arguments

Tier = Literal["ci", "full", "glance", "selfcheck"]
"""How much is compared: ``ci`` within minutes, ``full`` everything, ``glance`` a first look, with
which ``ci`` runs every configuration but the plain one, ``selfcheck`` enough to see a fault."""

Judged = Literal["result", "error", "alerts"]
"""What is compared of a call: its result; the error that it must raise; or its result or error,
whichever the CPU gives, and its warnings."""

ORDINARY: Final = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
ALL: Final = (*ORDINARY, torch.float64)


class NotASample(Exception):
    """What was drawn shows nothing here, such as a gradient sample without a gradient."""


@dataclass(frozen=True)
class Case:
    """One call. ``arguments`` are the CPU originals; they are copied, never passed on."""

    label: str
    function: Callable[..., Any]
    arguments: Arguments
    judged: Judged = "result"
    pattern: str = ""
    """what the error's text must match where texts are the target's own and not the CPU's"""


Cases = Callable[[Any, torch.dtype], Iterator[Case]]


@dataclass(frozen=True)
class Pass:
    """A named set of calls over some dtypes, the same for all entries of a suite.

    The limits are per entry and dtype: the number of cases that stock CPU carries out. None is
    no limit, and 0 leaves the pass out of the tier. ``full`` has all cases of all passes.
    """

    name: str
    dtypes: tuple[torch.dtype, ...]
    cases: Cases
    about: str
    any_dtype: bool = False
    """An entry that supports none of ``dtypes`` is run with another that it does support."""
    ci: int | None = None
    glance: int | None = 0
    selfcheck: int | None = 0
    defined_memory: bool = False
    """Memory that is otherwise not initialised has a defined value in this pass."""

    native_versions: bool = True
    """Version counters are to rise as those of the device that flagos stands on do."""

    def limit(self, tier: Tier) -> int | None:
        """The limit of that tier."""
        limits = {"ci": self.ci, "glance": self.glance, "selfcheck": self.selfcheck}
        return limits.get(tier)

    def dtypes_of(self, entry: Any) -> list[torch.dtype]:
        """The dtypes to run for an entry, as stock CPU supports them."""
        if not hasattr(entry, "supported_dtypes"):
            return list(self.dtypes)
        supported = entry.supported_dtypes("cpu")
        chosen = [dtype for dtype in self.dtypes if dtype in supported]
        if not chosen and self.any_dtype:
            rest = [dtype for dtype in ALL if dtype in supported]
            chosen = (rest or sorted(supported, key=str))[:1]
        return chosen


@dataclass(frozen=True)
class Suite:
    """One of PyTorch's databases, and what is done with its entries.

    ``wrong`` are the operators (overloads of aten) that the self-check makes wrong, and
    ``wrong_entries`` how many entries must fail then: a comparison that sees fewer is not to be
    trusted.
    """

    name: str
    about: str
    passes: tuple[Pass, ...]
    load: Callable[[], Mapping[str, Any]]
    """imports the database and returns its entries by name"""
    wrong: tuple[str, ...]
    wrong_entries: int
    by_name: bool = False
    """it runs only where it is asked for by its name: it takes long"""

    def passes_in(self, tier: Tier) -> tuple[str, ...]:
        """The names of the passes that run in a tier."""
        return tuple(item.name for item in self.passes if item.limit(tier) != 0)

    def pass_named(self, name: str) -> Pass:
        """The pass. Raises KeyError for a name that no pass has."""
        for item in self.passes:
            if item.name == name:
                return item
        raise KeyError(name)
