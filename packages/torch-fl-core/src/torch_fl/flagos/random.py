"""Owns: random numbers of `torch.flagos`: seeds and states of the devices' default generators.

Seeding starts nothing: before the first use a seed is remembered and applied at the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, overload

import torch

from torch_fl import _C
from torch_fl.flagos.devices import (
    DEVICE_TYPE,
    _call_when_ready,
    _checked,
    _existing_index,
    _lazy_init,
    current_device,
    device_count,
)

if TYPE_CHECKING:
    from torch.types import Device

__all__ = [
    "default_generators",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]

_SEED_RANGE = range(-(2**63), 2**64)


class _DefaultGenerators(Sequence[torch.Generator]):
    """The default generators, one a device. The length starts nothing, an element does."""

    def __len__(self) -> int:
        return device_count()

    @overload
    def __getitem__(self, index: int) -> torch.Generator: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[torch.Generator, ...]: ...
    def __getitem__(self, index: int | slice) -> torch.Generator | tuple[torch.Generator, ...]:
        which = range(len(self))[index]
        _lazy_init()  # applies seeds that wait
        if isinstance(which, int):
            return _C.default_generator(which)
        return tuple(_C.default_generator(i) for i in which)

    def __iter__(self) -> Iterator[torch.Generator]:
        return iter(self[:])

    def __repr__(self) -> str:
        return f"<default generators of {len(self)} {DEVICE_TYPE} devices>"


default_generators = _DefaultGenerators()


def _get_generator(device: torch.device) -> torch.Generator:
    """Default generator of `device`; PyTorch asks for it to replay randomness."""
    return default_generators[_existing_index(device)]


def get_rng_state(device: Device = DEVICE_TYPE) -> torch.Tensor:
    """State of a device's default generator: a uint8 tensor on the CPU, one dimension.

    Args:
        device: index, "flagos:1", torch.device or None; the current device by default.

    Raises:
        ValueError: another device type.
        RuntimeError: no such device.
    """
    return default_generators[_existing_index(device)].get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """States of all devices, by index."""
    return [generator.get_state() for generator in default_generators]


def set_rng_state(new_state: torch.Tensor, device: Device = DEVICE_TYPE) -> None:
    """Continue a device's default generator from a state that `get_rng_state` gave.

    Starts the runtime, so that a state that does not fit is refused here and not later.

    Raises:
        TypeError, RuntimeError: not a state.
        ValueError: another device type.
        RuntimeError: no such device.
    """
    default_generators[_existing_index(device)].set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Continue device 0, 1, … from the given states; errors as `set_rng_state`."""
    for index, state in enumerate(new_states):
        set_rng_state(state, _checked(index))


def _as_seed(seed: int) -> int:
    seed = int(seed)
    if seed not in _SEED_RANGE:
        raise RuntimeError(f"A seed must be in [-2**63, 2**64), but got {seed}")
    return seed


def manual_seed(seed: int) -> None:
    """Seed the current device; `manual_seed_all` and `torch.manual_seed` seed all.

    Args:
        seed: -2**63 to 2**64 - 1; a negative one means itself plus 2**64.

    Raises:
        RuntimeError: a seed outside the range.
    """
    seed = _as_seed(seed)

    def apply() -> None:
        _C.default_generator(current_device()).manual_seed(seed)

    _call_when_ready("current device", apply)


def manual_seed_all(seed: int) -> None:
    """Seed every device with the same number; range and errors as `manual_seed`."""
    seed = _as_seed(seed)

    def apply() -> None:
        for index in range(device_count()):
            _C.default_generator(index).manual_seed(seed)

    _call_when_ready("all devices", apply, replaces_all=True)


def seed() -> None:
    """Seed the current device with a number that cannot be foreseen."""

    def apply() -> None:
        _C.default_generator(current_device()).seed()

    _call_when_ready("current device", apply)


def seed_all() -> None:
    """Seed every device with one number that cannot be foreseen."""

    def apply() -> None:
        manual_seed_all(torch.Generator().seed())

    _call_when_ready("all devices", apply, replaces_all=True)


def initial_seed() -> int:
    """The number that the current device was seeded with last. Starts the runtime."""
    return default_generators[current_device()].initial_seed()
