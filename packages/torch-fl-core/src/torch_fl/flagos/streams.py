"""Owns: streams and events of `torch.flagos`, as subclasses of PyTorch's own.

Work on one stream runs in order; work on two streams has no order but the one that events give
it. On the host backend work is complete when the call that submits it returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from torch_fl import _C
from torch_fl.flagos import _target
from torch_fl.flagos.devices import (
    DEVICE_TYPE,
    _checked,
    _existing_index,
    _get_device_index,
    _lazy_init,
)

if TYPE_CHECKING:
    from types import TracebackType

    from torch.types import Device
    from typing_extensions import Self

__all__ = [
    "Event",
    "ExternalStream",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "get_stream_from_external",
    "set_stream",
    "stream",
]

_DEFAULT_STREAM_ID = 0  # c10::Stream::DEFAULT


# PyTorch's own methods take whatever object they get for a stream or an event, unchecked.
def _as_stream(stream: object) -> torch.Stream:
    if not isinstance(stream, torch.Stream):
        raise TypeError(f"Expected a torch.Stream, but got {type(stream).__name__}")
    return stream


def _as_event(event: object) -> torch.Event:
    if not isinstance(event, torch.Event):
        raise TypeError(f"Expected a torch.Event, but got {type(event).__name__}")
    return event


class Stream(torch.Stream):
    """A queue of work of one device; `with stream:` makes it current.

    Args:
        device: device of the stream; the current one for `None` and for a negative index.
        priority: lower numbers are served first; 0 by default. What is outside the range of the
            device becomes the nearest value inside.
        stream_id, device_index, device_type: name an existing stream instead, all three together.

    Raises:
        ValueError: another device type.
        RuntimeError: no such device.
    """

    def __new__(
        cls,
        device: Device = None,
        priority: int = 0,
        *,
        stream_id: int | None = None,
        device_index: int | None = None,
        device_type: int | None = None,
    ) -> Self:
        _lazy_init()
        if stream_id is None and device_index is None and device_type is None:
            negative = isinstance(device, int) and device < 0
            index = _existing_index(None if negative else device)
            place = torch.device(DEVICE_TYPE, index)
            return super().__new__(cls, device=place, priority=priority)
        if stream_id is None or device_index is None or device_type is None:
            raise ValueError("stream_id, device_index and device_type must be given together")
        existing = super().__new__(
            cls,
            stream_id=stream_id,
            device_index=_checked(device_index),
            device_type=device_type,
            priority=priority,
        )
        _get_device_index(existing.device)  # refuses another device type
        return existing

    def wait_event(self, event: torch.Event) -> None:
        """Let later work on this stream wait for `event`. Returns at once."""
        _as_event(event).wait(self._seen_by(event))

    def wait_stream(self, stream: torch.Stream) -> None:
        """Let later work on this stream wait for what `stream` holds now. Returns at once."""
        super().wait_stream(_own(_as_stream(stream)))

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Record `event`, or a new `Event`, behind the work submitted so far, and return it."""
        event = Event() if event is None else _as_event(event)
        event.record(self._seen_by(event))
        return event

    def _seen_by(self, event: torch.Event) -> torch.Stream:
        """This stream as one of the event's device: the target's events know only the target's."""
        device: torch.device | None = event.device  # CUDA's has none before it is recorded
        if device is not None and device.type == DEVICE_TYPE:
            return self
        if _target.on_host() or (device is not None and device.type != _target.device_type()):
            raise ValueError(
                f"Expected an event of {DEVICE_TYPE}, but got one of {device and device.type}."
            )
        seen: torch.Stream = _target.stream_for_target(self)
        return seen

    @property
    def priority(self) -> int:
        """0, or below it where work is served earlier; see `priority_range`."""
        if _target.on_host():
            return _C.stream_priority(self.stream_id)
        return int(_target.stream_for_target(self).priority)

    @property
    def cuda_stream(self) -> int:
        """The backend's own handle, under the name that libraries written for CUDA ask for."""
        handle = getattr(self, "native_handle", None)  # torch 2.13, says its own stub not
        if handle is None:
            handle = _target.stream_for_target(self).cuda_stream
        return int(handle)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """(lowest, highest) priority of a stream; a lower number is served first."""
        _lazy_init()
        if _target.on_host():
            return 0, -1  # accepted and told apart, though nothing ever waits
        ask = _target.find("Stream.priority_range")
        lowest, highest = ask() if ask else (0, 0)
        return lowest, highest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, torch.Stream) and super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return super().__hash__()

    def __repr__(self) -> str:
        return f"<torch.{DEVICE_TYPE}.Stream device={self.device} stream_id={self.stream_id:#x}>"


class _EventType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        if cls is not Event:
            return super().__instancecheck__(instance)
        return isinstance(instance, torch.Event) and instance.device.type == DEVICE_TYPE


class Event(torch.Event, metaclass=_EventType):
    """A mark in a stream: it can be waited for, asked for, and gives times.

    Calling it makes a plain `torch.Event` of this device, and every such event is an instance:
    `torch.Event.elapsed_time` and `torch.Stream.record_event` refuse objects of a subclass.

    Args:
        enable_timing: record times as well, for `elapsed_time`, which gives milliseconds.
        blocking: accepted for code written for CUDA; waiting never spins here.
        interprocess: accepted likewise; `ipc_handle` raises NotImplementedError.
        external: an event that stays visible outside the graph that captures it. Only the
            backend's own module can make one: NotImplementedError.
    """

    def __new__(  # type: ignore[misc]  # not an instance of this class, see above
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> torch.Event:
        if external:
            raise NotImplementedError(
                f"torch.{DEVICE_TYPE}.Event has no external=True: graphs are the backend's. Take "
                "the event from the backend's own module."
            )
        return torch.Event.__new__(
            torch.Event if cls is Event else cls,
            torch.device(DEVICE_TYPE),
            enable_timing=enable_timing,
            blocking=blocking,
            interprocess=interprocess,
        )


def _as_flagos(stream: torch.Stream) -> Stream:
    return Stream(
        stream_id=stream.stream_id,
        device_index=stream.device_index,
        device_type=stream.device_type,
    )


def _own(stream: torch.Stream) -> torch.Stream:
    """`stream`, under flagos' name where it is the target's: they are the same queues."""
    if stream.device.type == DEVICE_TYPE or stream.device.type != _target.device_type():
        return stream
    return Stream(
        stream_id=stream.stream_id,
        device_index=stream.device_index,
        device_type=current_stream(stream.device_index).device_type,
    )


def current_stream(device: Device = None) -> Stream:
    """The stream that operators on a device, the current one by default, are submitted to.

    Raises:
        ValueError: another device type.
        RuntimeError: no such device.
    """
    _lazy_init()
    return _as_flagos(torch.accelerator.current_stream(_existing_index(device)))


def default_stream(device: Device = None) -> Stream:
    """The stream that a device starts with; errors as `current_stream`."""
    current = current_stream(device)
    return Stream(
        stream_id=_DEFAULT_STREAM_ID,
        device_index=current.device_index,
        device_type=current.device_type,
    )


def set_stream(stream: torch.Stream | None) -> None:
    """Make `stream` current on its device and that device current; `None` changes nothing.

    Prefer the `stream` context manager, which restores what was before.

    Raises:
        ValueError: a stream of another device type.
    """
    if stream is None:
        return
    own = _own(_as_stream(stream))
    _get_device_index(own.device)  # refuses another device type
    _lazy_init()
    torch.accelerator.set_stream(own)


_NO_HANDLES = (
    "the host backend has no native streams: work is complete when the call that gives it returns. "
    "Use torch.flagos.Stream."
)


def get_stream_from_external(data_ptr: int, device: Device = None) -> Stream:
    """A stream that another library made, by its native handle.

    The other library keeps owning it: it must outlive the result.

    Args:
        data_ptr: the native handle.
        device: the device that it was made on, the current one by default.

    Raises:
        NotImplementedError: the backend has no native streams; always on the host.
    """
    _lazy_init()
    index = _existing_index(device)
    make = _target.attribute("ExternalStream", _NO_HANDLES)
    current = current_stream(index)
    return Stream(
        stream_id=make(data_ptr, device=index).stream_id,
        device_index=index,
        device_type=current.device_type,
    )


class ExternalStream(Stream):
    """A stream that another library made; calling this is `get_stream_from_external`.

    Args:
        stream_ptr: the native handle.
        device: the device that it was made on, the current one by default.
    """

    def __new__(cls, stream_ptr: int, device: Device = None) -> Stream:  # type: ignore[misc]
        return get_stream_from_external(stream_ptr, device)


class StreamContext:
    """Context manager that makes a stream and its device current and restores both.

    Args:
        stream: the stream; with `None` it does nothing.
    """

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        # What to go back to, last first: the stream of the stream's device, then the stream of
        # the device that was current. A stack, so that one object may be entered again.
        self._previous: list[tuple[Stream, Stream]] = []

    def __enter__(self) -> None:
        if self.stream is None:
            return
        before = current_stream()
        there = current_stream(_own(_as_stream(self.stream)).device)
        set_stream(self.stream)
        self._previous.append((there, before))

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.stream is None:
            return
        for stream in self._previous.pop():
            set_stream(stream)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Context manager in which `stream` and its device are current; see `StreamContext`."""
    return StreamContext(stream)
