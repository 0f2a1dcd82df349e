"""Owns: drawing samples from PyTorch's databases, the same whatever happens between two of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy
import torch

from ..harness.call import seed_generators
from ..harness.movers import CPU

SAMPLE_SEED: Final = 1234


def seeded(make: Callable[[], Iterable[Any]]) -> Iterator[tuple[int, Any]]:
    """The samples that `make()` gives, numbered; everything is seeded before each of them.

    The calls in between draw numbers too and must not change the samples. Some databases make all
    of an entry's at once, so everything is seeded before `make()` as well.
    """
    _seed()
    iterator = iter(make())
    for index in itertools.count():
        _seed()
        try:
            sample = next(iterator)
        except StopIteration:
            return
        yield index, sample


def _seed() -> None:
    seed_generators(CPU, SAMPLE_SEED)
    random.seed(SAMPLE_SEED)
    numpy.random.seed(SAMPLE_SEED)


def samples_of(op: Any, dtype: torch.dtype, requires_grad: bool) -> Iterator[tuple[int, Any]]:
    """The operator's samples on the CPU.

    Not by ``OpInfo.sample_inputs``, which also inspects the stack for the test that called it,
    50 ms a time, and seeds slowly (see `seed_generators`).
    """
    return seeded(lambda: op.sample_inputs_func(op, "cpu", dtype, requires_grad))
