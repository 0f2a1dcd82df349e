"""Owns: tests of the accelerator that Lightning gets, without Lightning."""

from __future__ import annotations

import pytest
import torch
from children import output_of_child

from torch_fl.ecosystem import lightning


def test_importing_torch_fl_imports_no_library() -> None:
    said = output_of_child(
        "import sys, torch, torch_fl\nprint([n for n in sys.modules if 'lightning' in n])"
    )
    assert said.strip() == "['torch_fl.ecosystem.lightning']"


def _accelerator() -> type:
    class Base:
        pass

    made: type = lightning.accelerator_class(Base)
    return made


@pytest.mark.parametrize(
    ("asked", "got"),
    [(1, [0]), (-1, None), ("1", [0]), ("-1", None), ("0,", [0]), ([0], [0])],
)
def test_devices_of_the_accelerator(asked: int | str | list[int], got: list[int] | None) -> None:
    everything = list(range(torch.accelerator.device_count()))
    assert _accelerator().parse_devices(asked) == (everything if got is None else got)  # type: ignore[attr-defined]


@pytest.mark.parametrize("asked", [65, [64], "64,", 0, [], [-2]])
def test_devices_that_are_not_there(asked: int | str | list[int]) -> None:
    with pytest.raises(ValueError, match="there are"):
        _accelerator().parse_devices(asked)  # type: ignore[attr-defined]


def test_accelerator() -> None:
    accelerator = _accelerator()()
    assert accelerator.name() == "flagos"
    assert accelerator.is_available()
    assert accelerator.get_parallel_devices([0]) == [torch.device("flagos", 0)]
    accelerator.setup_device(torch.device("flagos", 0))
    with pytest.raises(ValueError, match="not flagos"):
        accelerator.setup_device(torch.device("cpu"))
    assert accelerator.get_device_stats("flagos:0")["allocated_bytes.all.current"] >= 0
    accelerator.teardown()
