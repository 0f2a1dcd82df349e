"""Owns: where torch_fl enters AOTInductor's packages.

Reason: a package is loaded by one class, which PyTorch looks up by its name in `torch._C._aoti`
each time, and which has no hook; and compiled code reads tensors by their addresses, whatever their
device. A subclass takes its place. What a package says of itself is
`torch._inductor.config.aot_inductor.metadata`. Dated 2026-11, torch 2.11 to 2.14. Held by
tests/compile/test_compile_packages.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import torch

__all__ = ["Packages", "described", "install"]


class Packages(Protocol):
    """What torch_fl.compile.packages does with them."""

    def prepare(self, metadata: Mapping[str, str], device_index: int) -> int:
        """Before a package is loaded; the index of the device for it."""

    def bounded(
        self, run: Callable[[list[Any]], Any], metadata: Mapping[str, str], device_index: int
    ) -> Callable[[list[Any]], Any]:
        """What the package is called through."""

    def to_target(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Constants for the package's code."""


@contextlib.contextmanager
def described(metadata: Mapping[str, str]) -> Iterator[None]:
    """Within it, packages that are compiled say this too."""
    from torch._inductor import config
    from torch._inductor.virtualized import V

    if not V.aot_compilation:
        yield
        return
    with config.patch({"aot_inductor.metadata": {**config.aot_inductor.metadata, **metadata}}):
        yield


def install(packages: Callable[[], Packages]) -> None:
    """Puts a loader that knows flagos into the place of PyTorch's."""
    base: Any = torch._C._aoti.AOTIModelPackageLoader
    if getattr(base, "_torch_fl", False):
        return

    class AOTIModelPackageLoader(base):  # type: ignore[misc]
        """PyTorch's, for packages of flagos too."""

        _torch_fl = True

        def __init__(
            self,
            model_package_path: str,
            model_name: str = "model",
            run_single_threaded: bool = False,
            num_runners: int = 1,
            device_index: int = -1,
        ) -> None:
            metadata = base.load_metadata_from_package(model_package_path, model_name)
            index = packages().prepare(metadata, device_index)
            super().__init__(
                model_package_path, model_name, run_single_threaded, num_runners, index
            )
            self._torch_fl_region = packages().bounded(super().boxed_run, metadata, device_index)

        def boxed_run(self, inputs: list[Any], *stream: Any, **kwargs: Any) -> list[Any]:
            if stream or kwargs:  # on a stream of the target's, whose tensors these are then
                return list(super().boxed_run(inputs, *stream, **kwargs))
            return list(self._torch_fl_region(inputs))

        def run(self, inputs: list[Any], *stream: Any, **kwargs: Any) -> list[Any]:
            if stream or kwargs:
                return list(super().run(inputs, *stream, **kwargs))
            return list(self._torch_fl_region(list(inputs)))

        def load_constants(self, constants_map: Mapping[str, Any], *args: Any, **kw: Any) -> None:
            super().load_constants(packages().to_target(constants_map), *args, **kw)

        def update_constant_buffer(
            self, tensor_map: Mapping[str, Any], *args: Any, **kw: Any
        ) -> None:
            super().update_constant_buffer(packages().to_target(tensor_map), *args, **kw)

    torch._C._aoti.AOTIModelPackageLoader = AOTIModelPackageLoader  # type: ignore[misc]
