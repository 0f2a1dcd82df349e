"""Owns: the order in which a process gets its flagos device."""

from __future__ import annotations

import threading

from torch_fl._compat import autograd_guard, engine_threads, interpreter_exit, torch_binary
from torch_fl.plugins import selection
from torch_fl.plugins.spec import DelegateRuntime, HostRuntime

DEVICE = "flagos"

_lock = threading.RLock()
_activated = False


def activate() -> None:
    """Makes `flagos` this process's PrivateUse1 device. Idempotent and thread-safe.

    Raises RuntimeError when another backend owns PrivateUse1, ImportError when this build does not
    fit the installed torch, ValueError for a setting that cannot be understood. Nothing has been
    registered then.
    """
    global _activated
    with _lock:
        if _activated:
            return
        _refuse_other_owner()
        runtime = selection.select().runtime()
        extension = torch_binary.load()
        if isinstance(runtime, HostRuntime):
            extension.activate_host(runtime.devices, runtime.memory_limit, runtime.guard)
            engine_threads.install()
        elif isinstance(runtime, DelegateRuntime):
            extension.activate_delegate(runtime.device_type)
        _claim()  # last of what may fail: a PyTorch that is told of flagos needs it from then on
        _register_module()
        interpreter_exit.install()
        autograd_guard.install(delegating=isinstance(runtime, DelegateRuntime))
        _activated = True


def _refuse_other_owner() -> None:
    import torch

    owner = torch._C._get_privateuse1_backend_name()
    if owner not in ("privateuseone", DEVICE):
        raise RuntimeError(
            f"{owner!r} already owns PrivateUse1, the one slot that PyTorch keeps for a device "
            f"from outside, so flagos cannot be activated in this process. Either do not import "
            f"the package that brings {owner!r}, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 if it is "
            f"loaded by `import torch`."
        )


def _claim() -> None:
    import torch

    torch.utils.rename_privateuse1_backend(DEVICE)


def _register_module() -> None:
    import torch

    from torch_fl import flagos

    torch._register_device_module(DEVICE, flagos)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
