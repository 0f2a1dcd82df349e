"""Owns: sending flagos tensors to other processes, with their memory shared as CUDA's is.

Reason: PyTorch shares the memory of CPU and CUDA tensors, and takes every other device's storage
for host memory of its own: on flagos the sender then fails in a background thread while the
receiver waits for ever. A flagos tensor is sent as the tensor of the target that shares its memory,
so what PyTorch does for the target it does for flagos; where the target is the CPU, that memory
becomes shared memory first. Dated 2026-11, torch 2.11 to 2.15. Held by
tests/interop/test_processes.py.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from multiprocessing import reduction
from typing import Any

import torch
from torch.multiprocessing import reductions
from torch.multiprocessing.reductions import SharedCache, StorageWeakRef

from torch_fl import _C

__all__ = ["install"]

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]
Reducer = Callable[[Any], Reduced]

_FLAGOS = "flagos"
_FORKED = (
    "Cannot re-initialize flagos in forked subprocess. To use flagos with multiprocessing, you "
    "must use the 'spawn' start method"
)
_EVENT = (
    "A flagos event belongs to the process that recorded it and cannot be sent to another one. "
    "Call event.synchronize() and send the tensors that it is about."
)
_UNSHARABLE = (
    "PyTorch cannot share memory of device type {0!r}, on which flagos stands here, with other "
    "processes. Send tensor.cpu() instead."
)
_moving = threading.Lock()
# The flagos storage over each storage of the target that was sent or received: whoever gets a
# memory twice gets one storage, as on other devices.
_storages = SharedCache()


def install() -> None:
    """Teaches PyTorch's pickling for other processes what flagos tensors are."""
    module: Any = reductions
    # (Sparse tensors are reduced by their members, through the module's name.)
    module.reduce_tensor = _either(_reduce_tensor, reductions.reduce_tensor)
    module.reduce_storage = _either(_reduce_storage, reductions.reduce_storage)
    register: Any = reduction.register
    for kind in (torch.Tensor, torch.nn.Parameter, *torch._tensor_classes):
        register(kind, module.reduce_tensor)
    register(torch.UntypedStorage, module.reduce_storage)
    register(torch.Event, _reduce_event)
    storage: Any = torch.UntypedStorage
    storage.is_shared = _is_shared(storage.is_shared)


def _is_shared(of_others: Callable[[Any], bool]) -> Callable[[Any], bool]:
    @functools.wraps(of_others)
    def is_shared(self: torch.UntypedStorage) -> bool:
        # As on CUDA: there is nothing to be done before a tensor can be sent.
        return self.device.type == _FLAGOS or of_others(self)

    return is_shared


def _either(ours: Callable[[Any, Reducer], Reduced], others: Reducer) -> Reducer:
    """`ours` for what is on flagos, PyTorch's own `others` for the rest."""

    @functools.wraps(others)
    def reduce(thing: Any) -> Reduced:
        if thing.device.type != _FLAGOS or getattr(thing, "layout", None) not in _STRIDED:
            return others(thing)
        if _C.is_in_bad_fork():
            return _refused(RuntimeError(_FORKED))
        return ours(thing, others)

    return reduce


_STRIDED = (None, torch.strided)  # a storage has no layout


def _refused(error: Exception) -> Reduced:
    # A queue pickles in a thread of its own, where an exception ends in a printed text, while the
    # receiver waits for ever: there the receiver gets the error.
    if threading.current_thread().name == "QueueFeederThread":
        return _raise, (error,)
    raise error


def _raise(error: Exception) -> None:
    raise error


def _reduce_event(event: torch.Event) -> Any:
    if event.device.type != _FLAGOS:
        return event.__reduce_ex__(2)
    return _refused(NotImplementedError(_EVENT))


# -- tensors


def _reduce_tensor(tensor: torch.Tensor, reduce: Reducer) -> Reduced:
    if tensor.requires_grad and not tensor.is_leaf:
        return reduce(tensor)  # which says that this cannot be
    torch.utils.hooks.warn_if_has_hooks(tensor)
    view = _C.to_target(tensor)
    if not (view.is_cuda or view.device.type == "cpu"):
        return _refused(NotImplementedError(_UNSHARABLE.format(view.device.type)))
    facts = (type(tensor), tensor.requires_grad, tensor.is_conj(), tensor.is_neg())
    if view.untyped_storage().nbytes() == 0:
        # There is no memory to share; and of an empty tensor PyTorch sends the device's index
        # alone, which where it arrives means flagos and not the target.
        layout = (tensor.dtype, tensor.size(), tensor.stride())
        return _rebuild_empty, (*facts, tensor.device.index, *layout)
    _share(tensor)
    view = _C.to_target(tensor)
    _remember(tensor, view)
    return _rebuild_tensor, (*facts, tensor.device.index, *reduce(view))


def _rebuild_tensor(
    kind: type[torch.Tensor],
    requires_grad: bool,
    conj: bool,
    neg: bool,
    device: int,
    rebuild: Callable[..., torch.Tensor],
    arguments: tuple[Any, ...],
) -> torch.Tensor:
    torch.get_device_module(_FLAGOS)._lazy_init()
    view = rebuild(*arguments)
    tensor = _known(view)
    if tensor is None:
        tensor = _C.from_target(view, device)
        _remember(tensor, view)
    return _as_sent(tensor, kind, requires_grad, conj, neg)


def _rebuild_empty(
    kind: type[torch.Tensor],
    requires_grad: bool,
    conj: bool,
    neg: bool,
    device: int,
    dtype: torch.dtype,
    size: Sequence[int],
    stride: Sequence[int],
) -> torch.Tensor:
    tensor = torch.empty_strided(size, stride, dtype=dtype, device=torch.device(_FLAGOS, device))
    return _as_sent(tensor, kind, requires_grad, conj, neg)


def _as_sent(
    tensor: torch.Tensor, kind: type[torch.Tensor], requires_grad: bool, conj: bool, neg: bool
) -> torch.Tensor:
    tensor = tensor.conj() if conj else tensor
    tensor = torch._neg_view(tensor) if neg else tensor
    if kind is torch.nn.Parameter:
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)


def _share(tensor: torch.Tensor) -> None:
    """Moves the memory of a tensor where another process can reach it.

    Device memory of a target other than the CPU can be reached where it is.
    """
    with _moving:
        memory = _C.to_target(tensor).untyped_storage()
        if memory.device.type != "cpu" or memory.is_shared():
            return
        content = _bytes_over(tensor.untyped_storage())
        shared = _bytes_over(torch.UntypedStorage._new_shared(memory.nbytes()))
        shared.copy_(content)
        _C.replace_memory(content, shared)


def _bytes_over(storage: torch.UntypedStorage) -> torch.Tensor:
    with torch.no_grad():
        return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _remember(tensor: torch.Tensor, view: torch.Tensor) -> None:
    _storages[view.untyped_storage()._cdata] = StorageWeakRef(tensor.untyped_storage())


def _known(view: torch.Tensor) -> torch.Tensor | None:
    """A flagos tensor like `view` over the flagos storage that there is for its memory, if any."""
    reference = _storages.get(view.untyped_storage()._cdata)
    if reference is None:
        return None
    storage: Any = torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
    if storage is None:
        return None
    tensor = torch.empty(0, dtype=view.dtype, device=storage.device)
    return tensor.set_(storage, view.storage_offset(), view.size(), view.stride())


# -- storages


def _reduce_storage(storage: torch.UntypedStorage, _others: Reducer) -> Reduced:
    return _rebuild_storage, reductions.reduce_tensor(_bytes_over(storage))


def _rebuild_storage(
    rebuild: Callable[..., torch.Tensor], arguments: tuple[Any, ...]
) -> torch.UntypedStorage:
    return rebuild(*arguments).untyped_storage()
