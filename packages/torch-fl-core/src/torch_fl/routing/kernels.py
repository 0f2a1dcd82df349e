"""Owns: kernels that somebody registered as routes: Python functions, by provider and operator.

Each kernel is carried by an operator of its own, of the same schema, in PyTorch's own library
mechanism: PyTorch converts the arguments and results, and the engine calls it like any operator.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from torch_fl import _C
from torch_fl.plugins import selection
from torch_fl.routing import grammar
from torch_fl.routing.patterns import Operator

__all__ = ["Kernel"]

NAMESPACE: Final = "flagos_kernels"

Function = Callable[..., Any]


@dataclass(frozen=True)
class Kernel:
    """A function that carries out an operator on flagos tensors, and what it is limited to.

    It is called with the operator's arguments as its schema has them, below autograd, and returns
    what the operator returns; an operator that writes an argument returns that argument. Returning
    `NotImplemented` says that this call is not supported: the next route of the chain runs.

    Args:
        function: the function.
        dtypes: the only dtypes it is called for, None for all. The dtype of a call is that of its
            first tensor. A limit stated here costs nothing in the calls that it excludes.
        on_target: it takes and returns tensors of the device that the backend stands on, such as
            "cuda" ones, which share the memory; the engine relabels them as boxing does. For
            kernels that are written for that device, and ask for it.
    """

    function: Function
    dtypes: frozenset[torch.dtype] | None = None
    on_target: bool = False

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"A kernel is a function, but got {self.function!r}.")
        if self.dtypes is None:
            return
        given: Any = self.dtypes
        if isinstance(given, str) or not all(isinstance(x, torch.dtype) for x in given):
            raise TypeError(f"dtypes are torch.dtype objects, but got {self.dtypes!r}.")
        object.__setattr__(self, "dtypes", frozenset(self.dtypes))


@dataclass(frozen=True)
class Carried:
    """A kernel as the engine calls it: the operator that carries it, and what `Kernel` says."""

    operator: str
    dtypes: frozenset[torch.dtype] | None
    on_target: bool


Loader = Callable[[], Mapping[str, Function | Kernel]]
"""Gives the kernels of a provider when they are first needed; raises ImportError for none."""

_lock = threading.RLock()
_loaders: dict[str, Loader] = {
    # By its name: what is above routing is imported when a route asks for it, not before.
    "flaggems": lambda: importlib.import_module("torch_fl.flaggems.bridge").load(),
}
_kernels: dict[str, dict[Operator, Kernel]] = {}
_absent: dict[str, str] = {}  # why a provider has no kernels
_carried: dict[tuple[Operator, Function, str], str] = {}
_library: torch.library.Library | None = None


def register(provider: str, kernels: Mapping[str, Function | Kernel]) -> None:
    """Makes kernels known, see `torch_fl.routing.register`; changes no route in force."""
    grammar.vocabulary(providers=[provider])
    plugin = selection.current().plugin
    if plugin is not None and provider == plugin.name:
        raise ValueError(f"{provider!r} is the backend's own word for a route; use another name.")
    _add(provider, kernels)


def _add(provider: str, kernels: Mapping[str, Function | Kernel]) -> None:
    found = {Operator.of(name): _kernel(name, kernel) for name, kernel in kernels.items()}
    for operator, kernel in found.items():
        _schema(operator)
        _device(kernel)
    with _lock:
        _kernels.setdefault(provider, {}).update(found)
        _absent.pop(provider, None)


def providers() -> tuple[str, ...]:
    """The words of all providers."""
    with _lock:
        return tuple({**_loaders, **_kernels})


def find(provider: str, operator: str) -> Carried | str:
    """A provider's kernel for an operator, or one sentence on why there is none."""
    with _lock:
        _load(provider)
        if provider in _absent:
            return _absent[provider]
        wanted = Operator.of(operator)
        kernel = _kernels.get(provider, {}).get(wanted)
        if kernel is None:
            return f"{provider} has no kernel for it"
        carrier = _carry(wanted, kernel.function, _device(kernel))
        return Carried(carrier, kernel.dtypes, kernel.on_target)


def _load(provider: str) -> None:
    load = _loaders.pop(provider, None)
    if load is None:
        return
    try:
        _add(provider, load())
    except (Exception, SystemExit) as error:
        # Whatever a provider's package raises: its kernels are not there, and the chain goes on.
        _absent[provider] = f"{provider} is not available: {error or type(error).__name__}"


def exists(operator: str) -> bool:
    """Whether this PyTorch has an operator."""
    try:
        _schema(Operator.of(operator))
    except ValueError:
        return False
    return True


def _kernel(name: str, given: Function | Kernel) -> Kernel:
    if not isinstance(given, Kernel) and not callable(given):
        raise TypeError(f"The kernel of {name!r} must be a function, but is {given!r}.")
    return given if isinstance(given, Kernel) else Kernel(given)


def _schema(operator: Operator) -> torch.FunctionSchema:
    overload = "" if operator.overload == "default" else operator.overload
    try:
        return torch._C._get_schema(operator.name, overload)
    except RuntimeError:
        raise ValueError(f"There is no operator {str(operator)!r} in this PyTorch.") from None


def _device(kernel: Kernel) -> str:
    """The type of device whose tensors a kernel takes."""
    if not kernel.on_target:
        return "flagos"
    target = selection.current().target
    if target is None:
        raise ValueError(
            f"The kernel {kernel.function!r} is for tensors of the target, but this backend stands "
            "on no other device of PyTorch."
        )
    return target


def _carry(operator: Operator, function: Function, device: str) -> str:
    """The name of the operator that carries `function`, defined now if it was not yet."""
    global _library
    known = _carried.get((operator, function, device))
    if known:
        return known
    if _library is None:
        _library = torch.library.Library(NAMESPACE, "FRAGMENT")
    plain = operator.name.partition("::")[2]
    name = f"{plain}_{len(_carried)}"
    arguments = str(_schema(operator)).partition("(")[2]
    _library.define(f"{name}({arguments}")
    key = torch._C._dispatch_key_for_device(device)
    _library.impl(name, _checked(operator, function, device), key)
    _carried[operator, function, device] = f"{NAMESPACE}::{name}"
    return f"{NAMESPACE}::{name}"


class _Refused(Exception):
    """Carries a refusal to the engine, which goes on with the next route."""


def _checked(operator: Operator, function: Function, device: str) -> Function:
    """`function`, whose refusal reaches the engine, and whose results are what the schema says."""
    schema = _schema(operator)
    returns = schema.returns
    written = [_written(schema, result) for result in returns]
    names = [argument.name for argument in schema.arguments]

    @functools.wraps(function)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        try:
            result = function(*args, **kwargs)
        except TypeError as error:
            # Python takes a TypeError out of `a @ b` for "there is no such operator", and drops it.
            raise RuntimeError(f"{_name(operator, function)} raised TypeError: {error}") from error
        if result is NotImplemented:
            _C.refuse_call()
            raise _Refused
        results = result if len(returns) > 1 and isinstance(result, tuple | list) else (result,)
        if len(results) != max(len(returns), 1):
            raise _wrong(operator, function, f"{len(returns)} results", f"{len(results)}")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        for value, what, name in zip(results, returns, written, strict=False):
            if name is not None and value is not given.get(name):
                raise _wrong(operator, function, _argument(name), "another")
            if str(what.type) != "Tensor":
                continue
            if not isinstance(value, torch.Tensor) or value.device.type != device:
                raise _wrong(operator, function, f"a {device} tensor", _described(value))
        return result

    return kernel


def _written(schema: torch.FunctionSchema, result: Any) -> str | None:
    """The argument that a result is, of an operator that writes it."""
    if result.alias_info is None or not result.alias_info.is_write:
        return None
    for argument in schema.arguments:
        alias = argument.alias_info
        if alias is not None and alias.before_set & result.alias_info.before_set:
            return str(argument.name)
    return None


def _argument(name: str) -> str:
    return f"its argument {name!r}, which it writes"


def _described(value: object) -> str:
    return f"a {value.device} tensor" if isinstance(value, torch.Tensor) else repr(value)[:60]


def _wrong(operator: Operator, function: Function, wanted: str, got: str) -> RuntimeError:
    return RuntimeError(f"{_name(operator, function)} must return {wanted}, but returned {got}.")


def _name(operator: Operator, function: Function) -> str:
    name = getattr(function, "__name__", repr(function))
    return f"The kernel {name!r} of '{operator}'"


def words(aliases: Mapping[str, str]) -> grammar.Words:
    """The words that chains may use now."""
    custom = [name for name in providers() if name not in grammar.ROUTES]
    return grammar.vocabulary(aliases, custom)
