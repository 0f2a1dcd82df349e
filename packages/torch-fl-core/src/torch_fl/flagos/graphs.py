"""Owns: graphs of `torch.flagos`: work that is recorded once and replayed.

They are the backend's own: a graph records what its streams are given, and flagos shares these with
the device that it stands on. Host memory has none, since nothing there is given to a queue.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, cast

import torch

from torch_fl import _C
from torch_fl.flagos import _target
from torch_fl.flagos.devices import DEVICE_TYPE, _lazy_init, is_initialized

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CUDAGraph",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
]

_HOST = (
    "the host backend has no graphs: work is complete when the call that gives it returns, so "
    "there is nothing to record. Call the function itself instead of capturing and replaying it."
)


def is_current_stream_capturing() -> bool:
    """Whether the current stream is being recorded; never on the host. Starts nothing."""
    if not is_initialized() or _target.on_host():
        return False
    capturing = getattr(torch.accelerator.current_stream(), "is_capturing", None)  # torch 2.12
    ask = capturing or _target.find("is_current_stream_capturing")
    return bool(ask and ask())


def graph_pool_handle() -> tuple[int, int]:
    """A name for a memory pool that several graphs share, to be given as their `pool`.

    Raises:
        NotImplementedError: the backend has no graphs; always on the host.
    """
    _lazy_init()
    return cast("tuple[int, int]", _target.attribute("graph_pool_handle", _HOST)())


class CUDAGraph:
    """Recorded work; calling this makes the backend's own object, with CUDA's methods.

    `torch.accelerator.Graph` is the same for every backend of PyTorch.

    Args:
        keep_graph: keep the recorded graph, for changes, when the one that can be replayed is made.

    Raises:
        NotImplementedError: the backend has no graphs; always on the host.
    """

    def __new__(cls, keep_graph: bool = False) -> Any:
        _lazy_init()
        return _recording(_target.attribute("CUDAGraph", _HOST))(keep_graph)


@functools.cache
def _recording(graph: type) -> type:
    """The backend's graph, taking generators of flagos too."""

    class CUDAGraph(graph):  # type: ignore[misc]
        def register_generator_state(self, generator: torch.Generator) -> None:
            """Lets replays draw new numbers from `generator`: call it before the capture."""
            if generator.device.type == DEVICE_TYPE:
                generator = _C.target_generator(generator)
            super().register_generator_state(generator)

    return CUDAGraph


class graph:  # noqa: N801  (the name users write: `with torch.flagos.graph(g):`)
    """Context in which the work of a stream is recorded; calling this makes the backend's own.

    Args:
        cuda_graph: the `CUDAGraph` to record into.
        pool: the memory pool to use, from `graph_pool_handle` or another graph's `pool()`.
        stream: the stream to record, by default one that is made for it.
        capture_error_mode: what other calls are refused meanwhile: "global" in all threads,
            "thread_local" in this one, "relaxed" none.
        enable_annotations, check_input_liveness: passed on when they are set.

    Raises:
        NotImplementedError: the backend has no graphs; always on the host.
    """

    def __new__(
        cls,
        cuda_graph: CUDAGraph,
        pool: tuple[int, int] | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
        enable_annotations: bool = False,
        check_input_liveness: bool = False,
    ) -> Any:
        _lazy_init()
        options = {
            "enable_annotations": enable_annotations,
            "check_input_liveness": check_input_liveness,
        }
        return _target.attribute("graph", _HOST)(
            cuda_graph,
            pool=pool,
            stream=_target.stream_for_target(stream),
            capture_error_mode=capture_error_mode,
            **{name: True for name, value in options.items() if value},
        )


def make_graphed_callables(
    callables: Callable[..., Any] | tuple[Callable[..., Any], ...],
    sample_args: tuple[Any, ...],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: tuple[int, int] | None = None,
) -> Any:
    """Functions or modules whose forward and backward passes are recorded and replayed.

    Args:
        callables: what to record, one or a tuple.
        sample_args: a tuple of tensors with the shapes that will be used; for a tuple of callables
            one such tuple for each.
        num_warmup_iters: calls before recording.
        allow_unused_input: inputs may be left unused by the outputs.
        pool: the memory pool to use, from `graph_pool_handle`.

    Raises:
        NotImplementedError: the backend has no graphs; always on the host.
        RuntimeError: inside autocast whose cache of casts is on.
    """
    _lazy_init()
    if torch.is_autocast_enabled(DEVICE_TYPE) and torch.is_autocast_cache_enabled():
        raise RuntimeError(
            "make_graphed_callables does not support the autocast caching. Please set "
            "`cache_enabled=False`."
        )
    return _target.attribute("make_graphed_callables", _HOST)(
        callables,
        sample_args,
        num_warmup_iters=num_warmup_iters,
        allow_unused_input=allow_unused_input,
        pool=pool,
    )
