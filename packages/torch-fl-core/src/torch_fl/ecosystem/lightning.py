"""Owns: `Trainer(accelerator="flagos")` and `Fabric(accelerator="flagos")` of Lightning.

Lightning has a registry of accelerators, and no entry point that fills it. Its connector, which
turns the Trainer's arguments into objects, gives every accelerator that is neither CUDA's nor MPS'
the CPU as its one device, and CUDA's autocast: these two decisions are taken here for flagos. They
are private methods; `./dev test --ecosystem` holds them. Dated 2026-11, Lightning 2.6.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

__all__ = ["CONNECTORS", "introduce"]

NAME = "flagos"

# The module that reads the registry, and the one that has it and the accelerators' base class. Both
# of Lightning's distributions.
_TRAINER = ("trainer.connectors.accelerator_connector", "_AcceleratorConnector")
_PLACES = {
    f"lightning.pytorch.{_TRAINER[0]}": ("lightning.pytorch.accelerators", "AcceleratorRegistry"),
    f"pytorch_lightning.{_TRAINER[0]}": ("pytorch_lightning.accelerators", "AcceleratorRegistry"),
    "lightning.fabric.connector": ("lightning.fabric.accelerators", "ACCELERATOR_REGISTRY"),
    "lightning_fabric.connector": ("lightning_fabric.accelerators", "ACCELERATOR_REGISTRY"),
}
CONNECTORS = tuple(_PLACES)


def introduce(connector: ModuleType) -> None:
    """Adds flagos to the registry that this connector's module reads, and the two decisions."""
    home, registry = _PLACES[connector.__name__]
    accelerators = importlib.import_module(home)
    known = getattr(accelerators, registry)
    if NAME not in known:
        made = accelerator_class(accelerators.Accelerator)
        known.register(NAME, made, description=made.__name__)
    kind = getattr(connector, _TRAINER[1], None) or connector._Connector
    kind._choose_strategy = _choose_strategy(kind._choose_strategy, connector)
    kind._check_and_init_precision = _precision(kind._check_and_init_precision, connector)


def accelerator_class(base: Any) -> Any:
    """The accelerator, for a Lightning whose accelerators derive from `base`."""

    class FlagosAccelerator(base):  # type: ignore[misc]
        """flagos, for Lightning."""

        def setup_device(self, device: torch.device) -> None:
            if device.type != NAME:
                raise ValueError(f"FlagosAccelerator got the device {device}, which is not flagos.")
            torch.accelerator.set_device_index(device)

        def get_device_stats(self, device: Any) -> dict[str, Any]:
            """Statistics of the device's memory; sizes in bytes."""
            return dict(torch.accelerator.memory_stats(device))

        def teardown(self) -> None:
            torch.accelerator.empty_cache()

        @staticmethod
        def parse_devices(devices: int | str | list[int]) -> list[int]:
            """Indices for a number of devices, for -1 (all), "0,1" or [0, 1]."""
            return _indices(devices, torch.accelerator.device_count())

        @staticmethod
        def get_parallel_devices(devices: list[int]) -> list[torch.device]:
            return [torch.device(NAME, index) for index in devices]

        @staticmethod
        def auto_device_count() -> int:
            return torch.accelerator.device_count()

        @staticmethod
        def is_available() -> bool:
            return torch.accelerator.device_count() > 0

        @staticmethod
        def name() -> str:
            return NAME

    return FlagosAccelerator


def _indices(devices: int | str | list[int], count: int) -> list[int]:
    if isinstance(devices, str):
        words = [word for word in devices.split(",") if word.strip()]
        # "1" is a number of devices, "1," and "0,1" are indices: Lightning's own rule.
        devices = int(words[0]) if "," not in devices else [int(word) for word in words]
    if isinstance(devices, int):
        devices = list(range(count if devices == -1 else devices))
    wrong = [index for index in devices if not 0 <= index < count]
    if wrong or not devices:
        raise ValueError(
            f"Trainer(accelerator='{NAME}') was asked for the devices {devices}, but there are "
            f"{count} (0 to {count - 1}). Ask for devices=1 to {count}, or for some of these."
        )
    return devices


def _is_ours(connector: Any) -> bool:
    flag = connector._accelerator_flag
    return flag == NAME or type(flag).__name__ == "FlagosAccelerator"


def _choose_strategy(original: Callable[[Any], Any], module: Any) -> Callable[[Any], Any]:
    """The strategy where the user names none: one flagos device is that device, not the CPU."""

    @functools.wraps(original)
    def choose(self: Any) -> Any:
        one = self._num_nodes_flag == 1 and len(self._parallel_devices) == 1
        if _is_ours(self) and one:
            return module.SingleDeviceStrategy(device=self._parallel_devices[0])
        return original(self)

    return choose


def _precision(original: Callable[[Any], Any], module: Any) -> Callable[[Any], Any]:
    """Mixed precision by flagos' autocast, not CUDA's."""

    @functools.wraps(original)
    def check(self: Any) -> Any:
        found = original(self)
        if _is_ours(self) and type(found) is module.MixedPrecision and found.device == "cuda":
            return module.MixedPrecision(found.precision, NAME)
        return found

    return check
