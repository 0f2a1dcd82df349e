"""Owns: looking at every block of memory, and at what happened to it, in the format that PyTorch's
memory viewer reads (pytorch.org/memory_viz, torch.cuda._memory_viz)."""

from __future__ import annotations

import pickle
import sys
from typing import TYPE_CHECKING, Any, Literal

from torch_fl import _C
from torch_fl._compat.compiler import fx_frames
from torch_fl.flagos import _target
from torch_fl.flagos.devices import _existing_index, _lazy_init, is_initialized

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from torch.types import Device

__all__ = ["_dump_snapshot", "_record_memory_history", "_snapshot", "memory_snapshot"]

_OWN = "the core answers this itself."  # never shown: both ways are taken before
_CONTEXTS = (None, "state", "alloc", "all")  # their places are the numbers that C++ has for them
_STACKS = ("python", "all")
_ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "oom",
    "snapshot",
)


def _one_of(name: str, value: object, choices: Iterable[object]) -> None:
    if value not in choices:
        raise ValueError(
            f"{name} must be {', '.join(repr(choice) for choice in choices)}, but is {value!r}"
        )


def _record_memory_history(
    enabled: Literal["state", "all"] | bool | None = "all",
    context: Literal["state", "alloc", "all"] | None = "all",
    stacks: Literal["python", "all"] = "all",
    max_entries: int = sys.maxsize,
    device: Device = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: list[str] | None = None,
) -> None:
    """Record what happens to the memory of all devices, or stop. Off at first.

    Args:
        enabled: "all" records every event, "state" only who allocated the memory that is in use;
            None stops and forgets everything. True is "all" and False None.
        context: whose stacks are kept: of memory in use ("state"), of every allocation too
            ("alloc"), of every free too ("all"), or none.
        stacks: frames of Python and TorchScript, or those of C++ too.
        max_entries: events that are kept of a device; an older one makes room for a newer one.
            Each takes some 100 bytes, its stack some kilobytes.
        device: accepted as torch.cuda's; all devices are recorded.
        clear_history: forget what was recorded before.
        compile_context, global_record_annotations: for backends with a module of their own; they
            have no effect on the host.
        skip_actions: kinds of events that are left out: "alloc", "free_requested",
            "free_completed", "segment_alloc", "segment_free", "oom", "snapshot".

    Raises:
        ValueError: a word that is none of these.
        NotImplementedError: the backend has no history.
    """
    _lazy_init()
    if isinstance(enabled, bool):
        enabled = "all" if enabled else None
    if not _target.on_host():
        options: dict[str, object] = {
            "compile_context": compile_context,
            "global_record_annotations": global_record_annotations,
            "skip_actions": skip_actions,
        }
        _target.attribute("memory._record_memory_history", _OWN)(
            enabled,
            context=context,
            stacks=stacks,
            max_entries=max_entries,
            clear_history=clear_history,
            **{name: value for name, value in options.items() if value},
        )
        return
    _one_of("enabled", enabled, ("state", "all", None))
    _one_of("context", context, _CONTEXTS)
    _one_of("stacks", stacks, _STACKS)
    for action in skip_actions or ():
        _one_of("An action to skip", action, _ACTIONS)
    if enabled is None:
        _C.stop_history()
        return
    _C.start_history(
        enabled == "all",
        _CONTEXTS.index(context),
        stacks == "all",
        max_entries,
        clear_history,
        skip_actions or [],
    )


def _snapshot(device: Device = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """Every segment and block of memory, and the recorded events. Starts the runtime.

    Args:
        device: accepted as torch.cuda's; the snapshot has all devices.
        augment_with_fx_traces: tell of frames in code made by torch.fx what they were made from.

    Returns:
        "segments": pieces of memory taken from the system, with "device", "address",
        "total_size", "allocated_size", "requested_size" (bytes), "segment_type" ("small" or
        "large") and "blocks", each with "address", "size", "requested_size" (bytes), "state"
        ("active_allocated" or "inactive") and "frames".
        "device_traces": for each device a list of events with "action", "addr" ("device_free",
        in bytes, when out of memory), "size" (bytes), "time_us" (microseconds since 1970) and
        "frames".
        A frame has "filename", "line" and "name"; the innermost comes first.

    On the host a segment belongs to all streams ("stream" is 0), and a small one is shown whole,
    while memory_reserved() counts what was ever used of it.
    """
    _lazy_init()
    if not _target.on_host():
        found = _target.attribute("memory._snapshot", _OWN)
        options = {"augment_with_fx_traces": True} if augment_with_fx_traces else {}
        taken: dict[str, Any] = found(_existing_index(device), **options)
        return taken
    _existing_index(device)
    snapshot = _C.memory_snapshot(True)
    return fx_frames.explain(snapshot) if augment_with_fx_traces else snapshot


def _dump_snapshot(
    filename: str | os.PathLike[str] = "dump_snapshot.pickle",
    augment_with_fx_traces: bool = False,
) -> None:
    """Write `_snapshot` to a file that pytorch.org/memory_viz opens.

    Args:
        filename: the file, replaced if it exists.
        augment_with_fx_traces: as for `_snapshot`.
    """
    snapshot = _snapshot(augment_with_fx_traces=augment_with_fx_traces)
    with open(filename, "wb") as file:
        pickle.dump(snapshot, file)


def memory_snapshot(
    mempool_id: tuple[int, int] | None = None, include_traces: bool = True
) -> list[dict[str, Any]]:
    """The "segments" of `_snapshot`; before the first use there are none.

    Args:
        mempool_id: only the segments of that pool; the host has (0, 0) alone.
        include_traces: accepted as torch.cuda's: with False the events are not even looked at.
    """
    if not is_initialized():
        return []
    segments: list[dict[str, Any]]
    if not _target.on_host():
        ask = _target.attribute("memory_snapshot", _OWN)
        segments = ask(*([] if mempool_id is None else [mempool_id]))
        return segments
    segments = _C.memory_snapshot(False)["segments"]
    if mempool_id is None:
        return segments
    return [segment for segment in segments if segment["segment_pool_id"] == tuple(mempool_id)]
