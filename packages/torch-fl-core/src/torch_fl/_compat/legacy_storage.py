"""Owns: the base of the storage classes that PyTorch keeps for old code, such as FloatStorage.

Both are private: the base, which finds the device in the name of a class's module, and the set of
classes that PyTorch takes for storages. Held by tests/device_module/test_legacy_types.py.
"""

from __future__ import annotations

import torch


def storage_class(name: str, dtype: torch.dtype, module: str, doc: str) -> type:
    """A storage class `name` of `module`, whose last part is the device's type."""
    made = type(
        name,
        (torch.storage._LegacyStorage,),
        {"dtype": dtype, "_dtype": dtype, "__module__": module, "__doc__": doc},
    )
    torch._storage_classes.add(made)
    return made
