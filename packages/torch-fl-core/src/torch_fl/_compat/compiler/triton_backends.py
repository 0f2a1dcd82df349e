"""Owns: a maker's backend of Triton on flagos: which driver is active, what it and libdevice ask.

Reason: as in triton_compile.py. Triton takes the one driver that says it is active, and makers'
say so where the maker's own PyTorch is; they ask that one for devices and streams. Changed, once,
when Triton is imported:

- the driver that is active, unless somebody has set one: the target's, made when it is first used.
- the target's driver class and its compiler's map of modules, where a policy asks for it.

Dated 2026-11, Triton 3.2 to 3.8. Held by tests/compile/test_triton_contracts.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

__all__ = ["bind_driver", "bind_state", "fill_libdevice", "filled_with", "is_lazy", "use_driver"]

_LIBDEVICE = "triton.language.extra.libdevice"
_BOUND = "_torch_fl_bound"


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
    setattr(cls, _BOUND, frozenset(queries))


def bind_state(driver: Any, queries: Mapping[str, Callable[..., Any]]) -> Any:
    """Lets a driver that was made ask these for the state of its device, but for those that its
    class was bound to. Returns the driver."""
    bound: frozenset[str] = getattr(type(driver), _BOUND, frozenset())
    for name, query in queries.items():
        if name not in bound:
            setattr(driver, name, query)
    return driver


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


def filled_with(backend: str) -> str | None:
    """A digest of what libdevice was filled with for targets of this name."""
    return _filled.get(backend)
