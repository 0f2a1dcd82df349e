"""Owns: how the tests reach the benchmark, which is in the repository and not in the wheel."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCH = Path(__file__).parents[1] / "bench"


@contextmanager
def _importing() -> Iterator[None]:
    # For the time of the imports alone: beside cuda.py nobody would find NVIDIA's package `cuda`.
    sys.path.append(str(BENCH))
    try:
        yield
    finally:
        sys.path.remove(str(BENCH))


class Bench:
    """The benchmark's modules by name, as in `bench.comparison` for `_comparison.py`."""

    folder = BENCH

    def __getattr__(self, name: str) -> Any:
        with _importing():
            return importlib.import_module("training" if name == "training" else f"_{name}")

    @property
    def cuda(self) -> ModuleType:
        """The command; under another name, or it would stand for NVIDIA's package."""
        if "bench_cuda" not in sys.modules:
            spec = importlib.util.spec_from_file_location("bench_cuda", BENCH / "cuda.py")
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules["bench_cuda"] = module
            with _importing():
                spec.loader.exec_module(module)
        return sys.modules["bench_cuda"]


@pytest.fixture(scope="session")
def bench() -> Bench:
    """The benchmark's modules."""
    if not BENCH.is_dir():
        pytest.skip("the benchmarks are in the repository and not in the wheel")
    sys.path.append(str(BENCH / "measured"))  # workloads are imported when they are built
    return Bench()
