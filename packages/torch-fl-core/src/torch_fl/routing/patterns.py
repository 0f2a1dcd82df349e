"""Owns: which operators a pattern matches, and which of two patterns is more specific.

An operator has a name, "aten::add", and an overload, "Tensor". The overload that PyTorch leaves
unnamed is called "default", as in `torch.ops.aten.mm.default`.
"""

from __future__ import annotations

import fnmatch
import re
from functools import cached_property
from typing import Final, NamedTuple

from torch_fl.routing.grammar import NAMESPACE

UNNAMED: Final = "default"


class Operator(NamedTuple):
    """An operator by its two names. As text it has exactly one "::" and exactly one "."."""

    name: str
    overload: str

    @classmethod
    def of(cls, text: str) -> Operator:
        """The operator of "aten::add.Tensor", "aten::mm", "mm" or "mm.default"."""
        name, _, overload = text.partition(".")
        return cls(name if "::" in name else NAMESPACE + name, overload or UNNAMED)

    def __str__(self) -> str:
        """With the unnamed overload as PyTorch writes it: "aten::mm"."""
        return self.name if self.overload == UNNAMED else f"{self.name}.{self.overload}"

    @property
    def full(self) -> str:
        """With the overload always: "aten::mm.default"."""
        return f"{self.name}.{self.overload}"


class Pattern:
    """A pattern of an entry: "aten::add" (all overloads), "aten::add.Tensor", "*::_foreach_*"."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.name, _, overload = text.partition(".")
        self.overload = overload or None
        self.exact_name = not _has_wildcards(self.name)
        self.exact_overload = overload != "" and not _has_wildcards(overload)

    @property
    def specificity(self) -> tuple[bool, int, int]:
        """Larger for the more specific of two patterns that match one operator: a name without
        wildcards, then more characters that are not wildcards, then fewer wildcards."""
        wildcards = self.text.count("*") + self.text.count("?")
        return self.exact_name, len(self.text) - wildcards - self.text.count("."), -wildcards

    @cached_property
    def expression(self) -> re.Pattern[str]:
        """Matches `Operator.full` of the operators meant, in time linear in its length for each
        wildcard. Both texts have one "::" and one ".", so a wildcard cannot reach beyond them."""
        return re.compile(fnmatch.translate(f"{self.name}.{self.overload or '*'}"))

    def matches(self, operator: Operator) -> bool:
        if not self.exact_name:
            return self.expression.match(operator.full) is not None
        return self.name == operator.name and self.matches_overload(operator.overload)

    def matches_overload(self, overload: str) -> bool:
        """Whether an overload is meant, of an operator whose name is."""
        if self.overload is None or self.overload == overload:
            return True
        return not self.exact_overload and fnmatch.fnmatchcase(overload, self.overload)


def _has_wildcards(text: str) -> bool:
    return "*" in text or "?" in text
