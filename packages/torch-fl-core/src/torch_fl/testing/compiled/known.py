"""Owns: graphs that hold other operators than natively, and why.

On an accelerator only a reason in PyTorch itself counts: its graphs are those of flagos on it. An
entry whose graph holds the native operators fails a comparison, so the lists can only shrink.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from .program import before

__all__ = ["ON_ACCELERATORS", "ON_HOST", "unexpected"]

_ON_HOST: Mapping[str, tuple[str, ...]] = {
    "random numbers of the host are drawn from flagos' generators, by calls, and dropout is "
    "composed as the CPU's is eagerly": (
        "layers/attention-dropout",
        *("random/checkpoint", "random/checkpoint-eager", "random/distributions"),
        *("random/distributions-eager", "random/draws", "random/draws-eager"),
        *("random/draws-eager-apart", "random/dropout", "random/dropout-eager"),
        *("random/dropout-mask", "random/seeded-inside"),
    ),
    "a copy to the device that a tensor is on is none": (
        *("devices/mixed", "devices/mixed-mutation", "devices/two", "programs/numpy"),
        *("views/copies", "views/mutated-after-copy"),
        # A tensor of given numbers came to its device by a copy.
        *(("devices/factories", "indexing/lookup") if before("2.13", "so it was") else ()),
    ),
    "one device's code is compiled once, that of two devices twice": ("devices/same-code-on-both",),
    "PyTorch runs recurrent cells by fused operators for accelerators, and by written-out formulas "
    "on the CPU": ("layers/gru-steps", "layers/recurrent-cell"),
    "PyTorch takes operators over lists by default on accelerators, and a loop on the CPU": (
        *("training/adamw", "training/whole-step"),
    ),
    "autocast follows the accelerators' lists of operators, not the CPU's": ("training/autocast",),
    "PyTorch stacks the coefficients of bicubic resizing on the CPU alone, before its table of "
    "decompositions is asked": ("layers/resizing",),
}
_ANYWHERE: Mapping[str, tuple[str, ...]] = {
    "PyTorch fills a slice with a number by a constant of the CPU's for its own devices, and by a "
    "tensor of the device's for those from outside": ("indexing/put",),
}


def _by_graph(*reasons: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    return {graph: why for each in reasons for why, graphs in each.items() for graph in graphs}


ON_HOST: Final[Mapping[str, str]] = _by_graph(_ON_HOST, _ANYWHERE)
"""The reason by the graph's name where the native device is the CPU."""
ON_ACCELERATORS: Final[Mapping[str, str]] = _by_graph(_ANYWHERE)
"""The same on all others."""


def unexpected(native: str, graph: str, differing: Collection[str]) -> str:
    """What is wrong with operators that differ, or do not; nothing where it is as it should be."""
    reason = (ON_HOST if native == "cpu" else ON_ACCELERATORS).get(graph)
    if (reason is not None) == bool(differing):
        return ""
    return f"the native operators, and listed as others: {reason}" if reason else "other operators"
