"""Owns: `torch.nn.DataParallel` inside a migration: one device works, several are refused.

PyTorch's scatter, broadcast and gather between the devices of one process are written in CUDA, and
only CUDA's build has them. On one device there is nothing to share out: inputs are moved there, as
CUDA does.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_fl._compat.replacing import Place
from torch_fl.migrate import scopes
from torch_fl.migrate.names import TO

__all__ = ["places"]


def places() -> list[Place]:
    """What stands in for its constructor and for how it shares its inputs out."""
    kind = torch.nn.DataParallel
    make, share = kind.__init__, kind.scatter

    @functools.wraps(make)
    def initialise(
        self: Any, module: Any, device_ids: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        devices = torch.accelerator.device_count() if device_ids is None else len(device_ids)
        if scopes.inside() and devices > 1:
            raise NotImplementedError(
                f"torch.nn.DataParallel on {devices} devices is CUDA's alone: its broadcast and "
                f"gather are written in CUDA. Use torch.nn.parallel.DistributedDataParallel, one "
                f"process for each device, or give it one device: device_ids=[0]."
            )
        make(self, module, device_ids, *args, **kwargs)

    @functools.wraps(share)
    def scatter(self: Any, inputs: Any, kwargs: Any, device_ids: Any) -> Any:
        if not scopes.inside():
            return share(self, inputs, kwargs, device_ids)
        place = torch.device(TO, device_ids[0])
        parts = inputs, kwargs
        moved = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(place), parts)
        return tuple((part,) for part in moved)

    return [(kind, "__init__", initialise), (kind, "scatter", scatter)]
