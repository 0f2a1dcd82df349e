"""Owns: copies of a sample's arguments on one device.

Both sides of a comparison are
made here, the CPU side too, so that they differ in nothing but the device: storages are copied
whole (gaps between strided elements included) and each only once, so that strides, offsets and
aliasing between arguments survive. ``Tensor.to`` would lose all three.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from . import tree
from .declared import CPU_ARGUMENTS, NEEDS_DEVICE_ARGUMENT, plain

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Arguments:
    """The arguments of one call; the sample's ``input`` is the first positional one."""

    positional: tuple[Any, ...]
    keyword: dict[str, Any]

    @classmethod
    def of_sample(cls, operator: str, sample: Any) -> Arguments:
        """The arguments of an OpInfo ``SampleInput``, with the device that a factory needs."""
        keyword = dict(sample.kwargs)
        if plain(operator) in NEEDS_DEVICE_ARGUMENT:
            keyword.setdefault("device", "cpu")
        return cls((sample.input, *sample.args), keyword)

    def with_keyword(self, **more: Any) -> Arguments:
        """The same arguments and some more keywords."""
        return Arguments(self.positional, {**self.keyword, **more})

    def tensors(self) -> list[torch.Tensor]:
        """All tensors, positional ones first."""
        return tree.tensors((*self.positional, self.keyword))


class Mover:
    """Copies trees of CPU values to ``device``; shared storages stay shared within one mover."""

    def __init__(self, device: torch.device, operator: str = "") -> None:
        self._device = device
        self._operator = plain(operator)
        # The originals are held because a storage's address is unique only while it lives.
        self._storages: dict[tuple[int, torch.device], torch.UntypedStorage] = {}
        self._tensors: dict[int, torch.Tensor] = {}
        self._originals: list[torch.Tensor] = []

    def arguments(self, arguments: Arguments) -> Arguments:
        """The arguments of a call, on the device."""
        with torch.no_grad():
            return Arguments(
                tree.transform(arguments.positional, self._leaf),
                tree.transform(arguments.keyword, self._leaf),
            )

    def tensor(self, source: torch.Tensor) -> torch.Tensor:
        """One tensor, on the device: a leaf with the source's ``requires_grad``."""
        with torch.no_grad():
            return self._tensor(source, self._device)

    def _leaf(self, path: str, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            stays = (self._operator, path) in CPU_ARGUMENTS
            return self._tensor(leaf, CPU if stays else self._device)
        if isinstance(leaf, torch.device) and leaf.type == "cpu":
            return self._device
        if isinstance(leaf, str) and leaf.partition(":")[0] == "cpu":
            return str(self._device)
        if isinstance(leaf, torch.Generator):
            generator = torch.Generator(self._device)
            generator.manual_seed(leaf.initial_seed())
            return generator
        return leaf

    def _tensor(self, source: torch.Tensor, device: torch.device) -> torch.Tensor:
        known = self._tensors.get(id(source))
        if known is not None:
            return known
        if source.layout == torch.strided:
            moved = self._strided(source, device)
        elif source.layout == torch.sparse_coo:
            moved = torch.sparse_coo_tensor(
                self._strided(source._indices(), device),
                self._strided(source._values(), device),
                source.shape,
                is_coalesced=source.is_coalesced(),
                check_invariants=False,
            )
        elif source.layout in (torch.sparse_csr, torch.sparse_bsr):
            moved = self._compressed(source, source.crow_indices(), source.col_indices(), device)
        elif source.layout in (torch.sparse_csc, torch.sparse_bsc):
            moved = self._compressed(source, source.ccol_indices(), source.row_indices(), device)
        else:
            raise TypeError(f"no mover for a tensor of layout {source.layout}")
        moved.requires_grad_(source.requires_grad)
        self._originals.append(source)
        self._tensors[id(source)] = moved
        return moved

    def _strided(self, source: torch.Tensor, device: torch.device) -> torch.Tensor:
        storage = self._storage(source.untyped_storage(), device)
        moved = torch.empty(0, dtype=source.dtype, device=device)
        # set_ and not as_strided: the copy must not be a view of anything.
        moved.set_(storage, source.storage_offset(), source.size(), source.stride())
        if source.is_conj():
            torch._C._set_conj(moved, True)
        if source.is_neg():
            torch._C._set_neg(moved, True)
        return moved

    def _compressed(
        self,
        source: torch.Tensor,
        compressed: torch.Tensor,
        plain: torch.Tensor,
        device: torch.device,
    ) -> torch.Tensor:
        return torch.sparse_compressed_tensor(
            self._strided(compressed, device),
            self._strided(plain, device),
            self._strided(source.values(), device),
            source.shape,
            layout=source.layout,
            check_invariants=False,
        )

    def _storage(self, source: torch.UntypedStorage, device: torch.device) -> torch.UntypedStorage:
        key = (source._cdata, device)
        known = self._storages.get(key)
        if known is None:
            raw = torch.empty(0, dtype=torch.uint8).set_(source)
            copied = torch.empty(raw.numel(), dtype=torch.uint8, device=device)
            copied.copy_(raw)
            known = self._storages[key] = copied.untyped_storage()
        return known
