"""Owns: what `torch.cuda` is inside a migration: a module whose names are those of torch.flagos.

Inside, the user's code and the libraries it calls see flagos. PyTorch's own code sees `torch.cuda`
as it is: it asks there what this build of PyTorch has, and goes on in C++ that only CUDA has; for
any other accelerator it has ways of its own. Outside everybody sees `torch.cuda` as it is.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch

from torch_fl.migrate import profiler_marks, scopes
from torch_fl.migrate.names import renamed_arguments
from torch_fl.migrate.report import is_ours
from torch_fl.migrate.scopes import Scope

__all__ = ["StandIn", "cuda", "version"]

_ALONE = "torch.flagos has no such name: it is CUDA's alone."


class StandIn(ModuleType):
    """A module in the place of `real` that answers some names itself.

    `answer(scope, name, real)` is asked for code inside a migration that is not PyTorch's own.
    """

    def __init__(self, real: ModuleType, answer: Callable[[Scope, str, ModuleType], Any]) -> None:
        super().__init__(real.__name__, real.__doc__)
        own = vars(self)
        own.update(__spec__=real.__spec__, __loader__=real.__loader__, __package__=real.__package__)
        own.update(_torch_fl_real=real, _torch_fl_answer=answer)

    def __getattr__(self, name: str) -> Any:
        real: ModuleType = vars(self)["_torch_fl_real"]
        caller = sys._getframe(1).f_globals.get("__name__", "")
        scope = None if name.startswith("__") or is_ours(caller) else scopes.current()
        return vars(self)["_torch_fl_answer"](scope, name, real) if scope else getattr(real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(vars(self)["_torch_fl_real"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(vars(self)["_torch_fl_real"], name)

    def __dir__(self) -> list[str]:
        return dir(vars(self)["_torch_fl_real"])


def cuda(scope: Scope, name: str, real: ModuleType) -> Any:
    """torch.flagos' value for a name of `torch.cuda`.

    What flagos does not have is CUDA's own: libraries name such types in annotations, and ask
    whether an object is one. Functions of that kind raise NotImplementedError when they are called.
    """
    from torch_fl import flagos

    shown = f"torch.cuda.{name}"
    if hasattr(flagos, name):
        scope.add(shown)
        return _renaming(getattr(flagos, name))
    if name in profiler_marks.MODULES:
        scope.add(shown)
        return profiler_marks.MODULES[name]
    value = getattr(real, name)
    if name.startswith("_") or (isinstance(value, type) and issubclass(value, BaseException)):
        return value
    if _is_function(value):
        return _missing(value, shown)
    scope.add_limit(shown, _ALONE)
    return value


def version(scope: Scope, name: str, real: ModuleType) -> Any:
    """`torch.version`, as it is; a question for CUDA's version is noted."""
    value = getattr(real, name)
    if name == "cuda":
        scope.add_limit(
            "torch.version.cuda",
            f"it stays {value!r}: flagos is not CUDA, and no version of CUDA would be true.",
        )
    return value


@functools.cache  # one wrapper for a function, however often it is looked up
def _function(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs, _ = renamed_arguments(args, kwargs)
        return function(*args, **kwargs)

    # For pickle: another process finds it under the name that the script has used.
    call.__module__, call.__qualname__ = "torch.cuda", function.__name__
    return call


def _missing(function: Callable[..., Any], shown: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def refuse(*args: Any, **kwargs: Any) -> Any:
        if scope := scopes.current():
            scope.add_limit(shown, _ALONE)
        raise NotImplementedError(
            f"{shown}() has no counterpart in torch.flagos, so torch_fl.migrate() has nothing to "
            f"put in its place. Leave the call out for accelerators other than CUDA."
        )

    return refuse


def _is_function(value: object) -> bool:
    return isinstance(value, FunctionType | BuiltinFunctionType)


@functools.cache
def _device() -> type:
    class device(torch.flagos.device):  # type: ignore[name-defined,misc]  # noqa: N801
        def __init__(self, device: Any) -> None:
            (device,), _, _ = renamed_arguments((device,), {})
            super().__init__(device)

    return device


def _renaming(value: Any) -> Any:
    """`value`, taking CUDA's devices too: objects made before the migration are no strings that
    PyTorch still has to read."""
    if _is_function(value):
        return _function(value)
    return _device() if value is torch.flagos.device else value  # type: ignore[attr-defined]
