"""Owns: Dynamo's question for the current stream, where flagos has not been started.

Reason: Dynamo notes the accelerator's current stream at the beginning of every compilation and asks
for it again in each call of what it compiled, also where everything is on the CPU; and PyTorch
starts a device for that answer. A program that never names flagos would no longer be fit to fork,
and its forked children would be refused. Without a started device there is no stream to note.
Dated 2026-11, torch 2.11 to 2.14. Held by tests/compile/test_dynamo_streams.py.
"""

from __future__ import annotations

import collections
import functools
from typing import Any

import torch

from torch_fl import _C
from torch_fl._compat.importing import when_imported

__all__ = ["install"]

_DEFAULT_STREAM = 0


def install() -> None:
    """Answers Dynamo itself where an answer would start flagos."""
    when_imported("torch._dynamo.utils", _answer)
    when_imported("torch._dynamo.variables.streams", _note_nothing)


def _is_started() -> bool:
    return _C.is_initialized() and not _C.is_in_bad_fork()


def _answer(utils: Any) -> None:
    original = getattr(utils, "get_current_stream", None)
    if original is None:  # this torch does not ask
        return

    @functools.wraps(original)
    def get_current_stream(device: torch.device) -> Any:
        if _is_started() or device.type != "flagos":
            return original(device)
        index: int | None = device.index
        return torch.Stream(
            stream_id=_DEFAULT_STREAM,
            device_index=index or 0,
            device_type=torch._C._autograd.DeviceType.PrivateUse1.value,
        )

    utils.get_current_stream = get_current_stream


def _note_nothing(streams: Any) -> None:
    state = getattr(streams, "SymbolicStreamState", None)
    if state is None:
        return
    original = state.__init__

    @functools.wraps(original)
    def begin(self: Any) -> None:
        if _is_started():
            original(self)
        else:
            self.cur_stream_stack = collections.deque()

    state.__init__ = begin
