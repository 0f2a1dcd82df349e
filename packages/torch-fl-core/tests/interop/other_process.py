"""Owns: what runs in the other process of test_processes.py. Functions are sent by name."""

from __future__ import annotations

import os
from typing import Any

import torch


class OnFlagos(torch.utils.data.Dataset[torch.Tensor]):
    """Makes its items on flagos, in whatever process it is asked."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2,), float(index), device="flagos")


def serve(inbox: Any, outbox: Any) -> None:
    """Answers each (function of this module, argument) until None comes."""
    while (request := inbox.get()) is not None:
        function, argument = request
        outbox.put(function(argument))


def describe(tensors: list[Any]) -> list[dict[str, Any]]:
    return [
        {
            "type": type(x).__name__,
            "device": str(x.device),
            "layout": str(x.layout),
            "requires_grad": x.requires_grad,
            "dtype": str(x.dtype),
            "values": (x.to_padded_tensor(0) if x.is_nested else x.to_dense()).tolist(),
        }
        for x in tensors
    ]


def add_one(tensors: list[torch.Tensor]) -> None:
    with torch.no_grad():
        for tensor in tensors:
            tensor.add_(1)


def share_storages(tensors: list[torch.Tensor]) -> list[bool]:
    first = tensors[0].untyped_storage()._cdata
    return [x.untyped_storage()._cdata == first for x in tensors]


def keep(tensor: torch.Tensor) -> None:
    kept.append(tensor)


def take(_: None) -> list[float]:
    return [float(x) for x in kept.pop().tolist()]


def send_back(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def make(value: float) -> torch.Tensor:
    return torch.full((3,), value, device="flagos")


def storage_of(storage: torch.UntypedStorage) -> tuple[str, list[int]]:
    return str(storage.device), [*storage.cpu()]


def step(model: torch.nn.Module) -> None:
    """One step of training; the parameters are shared with the caller."""
    model(torch.ones(1, 2, device="flagos")).sum().backward()
    torch.optim.SGD(model.parameters(), lr=1.0).step()


def sharing_strategy(name: str) -> None:
    torch.multiprocessing.set_sharing_strategy(name)


def process_id(_: None) -> int:
    return os.getpid()


kept: list[torch.Tensor] = []
