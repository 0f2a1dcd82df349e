"""Owns: a Triton driver that runs compiled kernels, by Triton's interpreter, on host memory.

The kernels, their arguments, grids and streams are those that a device would get; only the machine
code is not what runs. So results of a device that is not there can be compared.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
import triton_recorder
from triton.language.extra import libdevice
from triton.runtime.interpreter import InterpretedFunction, TensorHandle
from triton.runtime.jit import JITFunction

# The interpreter replaces what is in these places and leaves some of it there.
_PLACES: tuple[Any, ...] = (
    tl,
    tl.core,
    tl.math,
    tl.standard,
    tl.core.tensor,
    tl.core.dtype,
    libdevice,
    JITFunction,
)


def _by_numpy(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        given = x.handle.data
        result = function(given.astype(np.float64)).astype(given.dtype)
        return tl.core.tensor(TensorHandle(result, x.handle.dtype), x.type)

    return call


_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf),
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}


@contextlib.contextmanager
def _interpreting() -> Iterator[None]:
    before = [(place, dict(vars(place))) for place in _PLACES]
    for name, function in _FUNCTIONS.items():
        setattr(libdevice, name, _by_numpy(function))
    JITFunction.__call__ = lambda self, *args, **kwargs: InterpretedFunction(self.fn)(
        *args, **kwargs
    )
    try:
        yield
    finally:
        for place, names in before:
            for name, value in names.items():
                if vars(place).get(name) is not value:
                    setattr(place, name, value)
            for name in set(vars(place)) - set(names):
                delattr(place, name)


class Launcher(triton_recorder.Launcher):
    """Called with a grid, a stream, what belongs to the driver, and the kernel's arguments."""

    def __init__(self, src: Any, metadata: Any) -> None:
        super().__init__(src, metadata)
        self._kernel = src.fn
        self._constants = {src.fn.arg_names[path[0]]: x for path, x in src.constants.items()}

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        super().__call__(*args, **kwargs)
        names = self._kernel.arg_names
        given = args[9:]
        if len(given) != len(names):  # constants are left out
            names = [name for name in names if name not in self._constants]
        named = {**dict(zip(names, given, strict=True)), **self._constants}
        with _interpreting():
            InterpretedFunction(self._kernel.fn).run(grid=args[:3], warmup=False, **named)


class Interpreter(triton_recorder.Recorder):
    """Stands for the driver of `target`, and runs its kernels."""

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        self.launcher_cls = Launcher
