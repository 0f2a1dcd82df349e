"""Owns: what fake tensors say of an operator's results where that depends on the device.

Reason: strides and shapes of a few results are not those of every device (convolutions keep
channels_last where the device's library does, the CPU's batch norm saves nothing in evaluation),
and PyTorch's functions know devices by name. A tracer would write down results that flagos does not
give, with views that cannot be made of the real ones. Answered in the target's name:

- `_meta_registrations.device_hint`, by which meta functions ask;
- the convolutions of FakeTensorMode, which choose a library in C++;
- what decompositions share that ask: those of batch norm, of unpooling (from 2.14).

Dated 2026-11, torch 2.11 to 2.14. Held by tests/compile/test_fake_results.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol

from torch_fl._compat.importing import when_imported

__all__ = ["ASKING", "TargetNames", "install"]

FLAGOS = "flagos"
ASKING = ("native_batch_norm_helper", "_get_batch_norm_reserve_tensor", "_max_unpoolnd")
"""Functions of `torch._decomp.decompositions`."""


class TargetNames(Protocol):
    """torch_fl.compile.target_names."""

    def target_type(self) -> str:
        """The type of the device whose results flagos gives."""

    def on_target(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which sees the target's tensors in flagos' place."""


def install(names: Callable[[], TargetNames]) -> None:
    """Changes each module when it is imported. `names` is called when a fake tensor comes."""
    for module, change in (
        ("torch._meta_registrations", _change_hint),
        ("torch._subclasses.fake_impls", _change_convolutions),
        ("torch._decomp.decompositions", _change_decompositions),
    ):
        when_imported(module, functools.partial(change, names))


def _change_hint(names: Callable[[], TargetNames], module: ModuleType) -> None:
    hint: Callable[[Any], str] = module.device_hint

    @functools.wraps(hint)
    def device_hint(tensor: Any) -> str:
        found = hint(tensor)
        return names().target_type() if found == FLAGOS else found

    module.device_hint = device_hint  # type: ignore[attr-defined]


def _change_convolutions(names: Callable[[], TargetNames], module: ModuleType) -> None:
    implementations = module.op_implementations_dict
    on_target = _lazily(names, module.conv)
    for operator, implementation in implementations.items():
        if implementation is module.conv:
            implementations[operator] = on_target


def _change_decompositions(names: Callable[[], TargetNames], module: ModuleType) -> None:
    for name in ASKING:
        setattr(module, name, _lazily(names, getattr(module, name)))


def _lazily(names: Callable[[], TargetNames], function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` on the target; how is asked when it is called for the first time."""

    @functools.lru_cache(maxsize=1)
    def on_target() -> Callable[..., Any]:
        return names().on_target(function)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return on_target()(*args, **kwargs)

    return called
