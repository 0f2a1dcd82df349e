"""Owns: `torch.autocast` and its decorators for flagos."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from torch_fl.flagos.devices import DEVICE_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["autocast", "custom_bwd", "custom_fwd"]


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, cast_inputs: torch.dtype | None = None
) -> Any:
    """`torch.amp.custom_fwd` for flagos: `forward` of a custom autograd function and autocast.

    Args:
        fwd: the method to decorate; without it, a decorator is returned.
        cast_inputs: in an autocast region, inputs that are floating-point flagos tensors get this
            type and `forward` runs without autocast.
    """
    return torch.amp.custom_fwd(fwd, device_type=DEVICE_TYPE, cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any] | None = None) -> Any:
    """`torch.amp.custom_bwd` for flagos: `backward` runs with the autocast state of `forward`.

    Args:
        bwd: the method to decorate; without it, a decorator is returned.
    """
    return torch.amp.custom_bwd(bwd, device_type=DEVICE_TYPE)


class autocast(torch.amp.autocast_mode.autocast):  # noqa: N801  (as torch.autocast)
    """`torch.autocast` for flagos.

    Args:
        enabled: with False, the region runs in the types of its inputs.
        dtype: the lower precision; by default `torch.get_autocast_dtype("flagos")`.
        cache_enabled: keep casted weights for the whole region.
    """

    def __init__(
        self,
        enabled: bool = True,
        dtype: torch.dtype | None = None,
        cache_enabled: bool = True,
    ) -> None:
        super().__init__(DEVICE_TYPE, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)
