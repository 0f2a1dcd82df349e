"""Owns: names: of the operators that stand for others, and of the namespaces that are PyTorch's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

NAMESPACE = "torch_fl_eager"

# Namespaces of operators that Inductor knows, or that PyTorch has for every device.
OF_PYTORCH = frozenset(
    (
        *("aten", "prim", "prims", "rngprims", "debugprims", "inductor", "streams"),
        *("quantized", "quantized_decomposed", "_quantized", "mkldnn", "onednn"),
        *("c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd"),
        *("symm_mem", "fsdp"),
    )
)

HOSTS = -1
"""In place of a flagos device's index: a tensor that is none of flagos'."""


@dataclass(frozen=True)
class Call:
    """What tells one operator of ours from another. As text, which another process can read:
    "torchvision::nms@0~boxes=-1", "aten::add.Tensor#other@1", "aten::rand@0+saves".

    `operator`: whose place it takes. `index`: of the flagos device that it is called on. `numbers`:
    arguments that are numbers in the places of tensors. `places`: arguments that are on another
    device, and its index. `form`: of `random_states`, empty for none.
    """

    operator: str
    index: int
    numbers: tuple[str, ...] = ()
    places: tuple[tuple[str, int], ...] = ()
    form: str = ""

    def __str__(self) -> str:
        numbers = "".join(f"#{name}" for name in self.numbers)
        places = ",".join(sorted(f"{name}={place}" for name, place in self.places))
        return f"{self.operator}{numbers}@{self.index}{'~' * bool(places)}{places}{self.form}"

    @classmethod
    def of(cls, text: str) -> Call:
        """Reads what `str` gives."""
        named, _, rest = text.rpartition("@")
        rest, plus, form = rest.partition("+")
        index, _, places = rest.partition("~")
        operator, *numbers = named.split("#")
        return cls(operator, int(index), tuple(numbers), tuple(_places(places)), plus + form)

    def identifier(self) -> str:
        """The text, as PyTorch takes an operator's name."""
        text = str(self).replace("::", "__").replace("@", "__on").replace("=-", "_no")
        return re.sub(r"\W", "_", text)


def _places(text: str) -> Iterable[tuple[str, int]]:
    for one in filter(None, text.split(",")):
        name, _, place = one.partition("=")
        yield name, int(place)
