"""Owns: where torch_fl enters Triton: in front of `triton.compile`.

Reason: options, argument types and refusals that a device needs have no hook in Triton, and errors
of a maker's compiler that mean a lack of resources are not told from others. Changed, once, when
Triton is imported:

- `triton.compile` (and the two modules that have it by name): what is compiled for the plugin's
  target goes through the plugin's policies; all else passes by.

triton_backends.py has the rest: the driver and libdevice.

Dated 2026-11, Triton 3.2 to 3.8. Held by tests/compile/test_triton_contracts.py.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from torch_fl._compat.compiler.triton_backends import filled_with
from torch_fl._compat.importing import when_imported

__all__ = [
    "CompilerHooks",
    "install",
    "target",
    "through",
]

_MARK = "_torch_fl_wraps"


class Prepared(Protocol):
    """A kernel as it is to be compiled."""

    @property
    def signature(self) -> Mapping[str, str]: ...

    @property
    def options(self) -> Mapping[str, object]: ...


class CompilerHooks(Protocol):
    """What happens to kernels; torch_fl.compile.policies has it."""

    @property
    def backend(self) -> str:
        """The name in Triton's targets that this is for."""

    @property
    def warp_size(self) -> int | None:
        """What Triton's targets are to have, if it is not what Inductor reckons with."""

    def prepare(self, **kernel: Any) -> Prepared:
        """Takes name, source, signature, constants, options, backend, arch and warp_size."""

    def resources(self, kernel: Any, error: Exception) -> tuple[int, int, str] | None:
        """What a compiler's error says of a prepared kernel: it needs so much, of so much, of
        what; None if it says nothing of resources."""


def install(compiler: Callable[[], Any]) -> None:
    """Enters Triton when it is imported. `compiler` gives torch_fl.compile.triton_device: its
    `hooks` is called then; None where nothing is to be changed."""
    when_imported("triton", functools.partial(_change, compiler))


def _change(compiler: Callable[[], Any], triton: Any) -> None:
    hooks: CompilerHooks | None = compiler().hooks()
    if hooks is None or hasattr(triton.compile, _MARK):
        return
    compiled = through(hooks, triton.compile)
    triton.compile = compiled
    triton.compiler.compile = compiled
    triton.compiler.compiler.compile = compiled


def target(backend: str, arch: int | str, warp_size: int) -> Any:
    """Triton's own value for it."""
    from triton.backends.compiler import GPUTarget

    return GPUTarget(backend, arch, warp_size)


def through(hooks: CompilerHooks, compile_: Callable[..., Any]) -> Callable[..., Any]:
    """`triton.compile` in which the hooks are called."""
    takes_key = "_env_vars" in inspect.signature(compile_).parameters

    @functools.wraps(compile_)
    def compile_for_target(src: Any, target: Any = None, options: Any = None, **others: Any) -> Any:
        import triton

        if target is None:
            target = triton.runtime.driver.active.get_current_target()
        # A file of IR has passed by the signature already.
        if target.backend != hooks.backend or not hasattr(src, "fn"):
            return compile_(src, target=target, options=options, **others)
        if hooks.warp_size is not None:
            target = type(target)(target.backend, target.arch, hooks.warp_size)
        kernel = hooks.prepare(**_fields(src, target, options))
        source = copy.copy(src)
        source.signature = dict(kernel.signature)
        if takes_key and not others.get("_env_vars") and (filled := filled_with(target.backend)):
            others["_env_vars"] = {**_cache_variables(), "TORCH_FL_LIBDEVICE": filled}
        try:
            return compile_(source, target=target, options=dict(kernel.options), **others)
        except triton.runtime.errors.OutOfResources:
            raise
        except Exception as error:
            found = hooks.resources(kernel, error)
            if found is None:
                raise
            needed, limit, name = found
            raise triton.runtime.errors.OutOfResources(needed, limit, name) from error

    setattr(compile_for_target, _MARK, compile_)
    return compile_for_target


def _fields(src: Any, target: Any, options: Any) -> dict[str, Any]:
    names = src.fn.arg_names
    constants = {
        names[path[0]] if isinstance(path, tuple) else path: value
        for path, value in src.constants.items()
    }
    return {
        "name": src.fn.__name__,
        "source": src.fn.src,
        "signature": dict(src.signature),
        "constants": constants,
        "options": dict(options or {}),
        "backend": target.backend,
        "arch": target.arch,
        "warp_size": target.warp_size,
    }


def _cache_variables() -> dict[str, str]:
    from triton._C.libtriton import get_cache_invalidating_env_vars

    return dict(get_cache_invalidating_env_vars())
