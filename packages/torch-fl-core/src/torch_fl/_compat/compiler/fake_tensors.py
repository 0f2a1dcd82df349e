"""Owns: fake tensors on another device that stand for the same memory, and real tensors among fake
ones.

Reason: PyTorch makes fake tensors from real ones or by operators; neither gives a second view of
one fake storage under another device's name, which is what alias analysis of a renamed graph needs.
A FakeTensor is made over another's meta tensor instead, as FakeTensorMode makes its own. And while
that mode is on, it sees each tensor that C++ makes of another, and refuses real ones: a graph's
constants are tensors of the device wherever there is a GPU. Dated 2026-11, torch 2.11 to 2.14. Held
by tests/compile/test_fake_tensor_contracts.py.
"""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager
from torch.utils._mode_utils import no_dispatch

__all__ = ["FakeTensor", "no_dispatch", "on_device"]
# `no_dispatch()`: a context in which modes and tensor subclasses see nothing of what is done.


def on_device(fake: FakeTensor, device: torch.device) -> FakeTensor:
    """`fake` as a tensor of `device`: same shape, strides, offset, dtype and storage, symbolic
    sizes included."""
    with in_kernel_invocation_manager(fake.fake_mode), no_dispatch():
        return FakeTensor(fake.fake_mode, fake, device)
