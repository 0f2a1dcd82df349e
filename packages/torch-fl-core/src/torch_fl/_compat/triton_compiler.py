"""Owns: where torch_fl enters Triton: in front of `triton.compile`, its driver, its libdevice.

Reason: Triton lets a backend be installed, not be told from outside what device it is on. A maker's
driver asks for the maker's own PyTorch, which does not go together with flagos; options, argument
types and refusals that a device needs have no hook; and one process may have drivers of several
makers, of which Triton picks the only one that is active, or none. Changed, once, when Triton is
imported:

- `triton.compile` (and the two modules that have it by name): what is compiled for the plugin's
  target goes through the plugin's policies; all else passes by.
- the driver that is active, unless somebody has set one: the target's, made when it is first used.
- the target's driver class and its compiler's map of modules, where a policy asks for it.

Dated 2026-11, Triton 3.2 to 3.8. Held by tests/compile/test_triton_contracts.py.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Protocol

from torch_fl._compat.importing import when_imported

__all__ = [
    "CompilerHooks",
    "bind_driver",
    "fill_libdevice",
    "install",
    "is_lazy",
    "target",
    "use_driver",
]

_LIBDEVICE = "triton.language.extra.libdevice"
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
    compiled = _through(hooks, triton.compile)
    triton.compile = compiled
    triton.compiler.compile = compiled
    triton.compiler.compiler.compile = compiled


def target(backend: str, arch: int | str, warp_size: int) -> Any:
    """Triton's own value for it."""
    from triton.backends.compiler import GPUTarget

    return GPUTarget(backend, arch, warp_size)


def _through(hooks: CompilerHooks, compile_: Callable[..., Any]) -> Callable[..., Any]:
    takes_key = "_env_vars" in inspect.signature(compile_).parameters

    @functools.wraps(compile_)
    def compile_for_target(src: Any, target: Any = None, options: Any = None, **others: Any) -> Any:
        import triton

        if target is None:
            target = triton.runtime.driver.active.get_current_target()
        # A file of IR has passed by the signature already.
        if target.backend != hooks.backend or not hasattr(src, "fn"):
            return compile_(src, target=target, options=options, **others)
        kernel = hooks.prepare(**_fields(src, target, options))
        source = copy.copy(src)
        source.signature = dict(kernel.signature)
        if takes_key and not others.get("_env_vars") and (filled := _filled.get(target.backend)):
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


class _Lazy:
    """Stands for a driver until something is asked of it."""

    def __init__(self, config: Any, make: Callable[[], Any]) -> None:
        self._config = config
        self._make = make

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_obj":
            raise AttributeError(name)
        driver = self._make()
        if self._config.active is self:
            self._config.set_active(driver)
        return getattr(driver, name)


def use_driver(make: Callable[[], Any]) -> None:
    """Lets the driver that `make` makes be the active one, unless somebody has set another. It is
    made when it is first used, and not where kernels are only compiled."""
    from triton.runtime import driver

    if getattr(driver, "_active", None) is None and not _is_made(driver):
        driver.set_active(_Lazy(driver, make))


def is_lazy(driver: object) -> bool:
    """Whether a driver is one of `use_driver` that has not been made."""
    return isinstance(driver, _Lazy)


def _is_made(config: Any) -> bool:
    """Whether Triton has made or was given a driver."""
    if hasattr(config, "_default"):
        return config._default is not None or config._active is not None
    # Before 3.4 the default is a proxy that makes the driver when it is first used.
    default = config.default
    return config.active is not default or getattr(default, "_obj", None) is not None


def bind_driver(key: str, queries: Mapping[str, object]) -> None:
    """Replaces attributes of a backend's driver class, and what its constructor sets of them.

    Raises RuntimeError where that backend is not there, or where its driver was already made.
    """
    from triton.backends import backends
    from triton.runtime import driver

    if key not in backends:
        return  # the first compilation says so, with all that belongs to it
    if _is_made(driver) and not is_lazy(driver.active):
        raise RuntimeError(
            f"Triton had made its driver before flagos could tell the backend {key!r} which device "
            "it is on. Import torch_fl before anything that launches a Triton kernel or asks for "
            "triton.runtime.driver.active."
        )
    cls = backends[key].driver
    for name, query in queries.items():
        setattr(cls, name, staticmethod(query) if callable(query) else query)
    construct = cls.__init__

    @functools.wraps(construct)
    def constructed(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        for name in queries.keys() & vars(self).keys():
            delattr(self, name)  # the class' own again

    cls.__init__ = constructed


_filled: dict[str, str] = {}  # what libdevice was filled with, by the name of the target


def fill_libdevice(key: str, functions: Mapping[str, str], backend: str = "") -> None:
    """Lets kernels of a backend find functions of libdevice where the references say. Raises
    ImportError or AttributeError for a reference that leads nowhere, when a kernel is compiled."""
    import pkgutil

    from triton.backends import backends

    if key not in backends:
        return
    cls = backends[key].compiler
    own = cls.get_module_map

    @functools.wraps(own)
    def get_module_map(self: Any) -> dict[str, ModuleType]:
        modules = dict(own(self))
        filled = ModuleType(_LIBDEVICE)
        filled.__dict__.update(vars(modules.get(_LIBDEVICE, ModuleType(_LIBDEVICE))))
        for name, reference in functions.items():
            setattr(filled, name, pkgutil.resolve_name(reference))
        modules[_LIBDEVICE] = filled
        return modules

    cls.get_module_map = get_module_map
    import hashlib

    text = repr(sorted(functions.items()))
    _filled[backend or key] = hashlib.sha256(text.encode()).hexdigest()
