"""Owns: the order in which a process gets its flagos device."""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable
from types import ModuleType

from torch_fl import settings
from torch_fl._compat import autograd_guard, engine_threads, interpreter_exit, torch_binary
from torch_fl.plugins import selection
from torch_fl.plugins.spec import AbiRuntime, DelegateRuntime, HostRuntime, Routes, Runtime

DEVICE = "flagos"

_lock = threading.RLock()
_registered = False  # a device, once there, is there for good
_activated = False


def activate() -> None:
    """Makes `flagos` this process's PrivateUse1 device. Idempotent and thread-safe.

    A backend that cannot be chosen or started is no error here, but at the device's first use.

    Raises RuntimeError when another backend owns PrivateUse1, ImportError when this build does not
    fit the installed torch: nothing has been registered then. Raises ValueError for routes and
    switches that cannot be understood, whenever it is called, and so does every use of the device.
    """
    global _registered, _activated
    with _lock:
        if _activated:
            return
        extension = torch_binary.load()
        if not _registered:
            _register(extension)
            _registered = True
        try:
            _apply_routes(extension)
        except ValueError as error:
            # On other routes than were asked for, the device must not run.
            extension.refuse_calls(str(error))
            raise
        extension.refuse_calls(None)
        _activated = True


def _register(extension: ModuleType) -> None:
    _refuse_other_owner()
    runtime = _start(extension)
    _claim()  # last of what may fail: a PyTorch that is told of flagos needs it from then on
    _register_module()
    interpreter_exit.install()
    if isinstance(runtime, HostRuntime):
        engine_threads.install()
    autograd_guard.install(delegating=isinstance(runtime, DelegateRuntime))
    _install_interop()


def _start(extension: ModuleType) -> Runtime | None:
    """The chosen backend's runtime, started. Where it cannot be started, the device exists all the
    same, and its first use raises the reason."""
    runtime = selection.current().runtime
    try:
        if isinstance(runtime, HostRuntime):
            extension.activate_host(runtime.devices, runtime.memory_limit, runtime.guard)
        elif isinstance(runtime, DelegateRuntime):
            extension.activate_delegate(runtime.device_type, runtime.foreach_takes_any_device)
        elif isinstance(runtime, AbiRuntime):
            raise NotImplementedError("this core has no loader for plugins with a C ABI yet")
    except Exception as error:
        selection.failed(error)
    failure = selection.current().error
    if failure is None:
        return runtime
    extension.activate_unavailable(failure)
    return None


def _install_interop() -> None:
    """Tensors to and from other libraries and processes, and what PyTorch gates by device names."""
    from torch_fl._compat import (
        attention_fast_path,
        attention_params,
        data_parallel,
        dlpack,
        flex_attention,
        jagged_attention,
        multiprocessing,
        recurrent_weights,
        safetensors,
        sparse_pickling,
    )

    target = selection.current().target
    if target:
        dlpack.install(target)
        multiprocessing.install()
        recurrent_weights.install()
        attention_params.install(target)
    attention_fast_path.install()
    data_parallel.install()
    sparse_pickling.install()
    safetensors.install()
    flex_attention.install()
    jagged_attention.install()
    _install_compiler()


def _install_compiler() -> None:
    """What torch.compile needs; most of it waits for the compiler to be imported."""
    from torch_fl._compat.compiler import (
        aot_autograd,
        caches,
        decompositions,
        dynamo,
        failures,
        fake_results,
        inductor,
        packages,
        triton_compile,
        triton_inductor,
        triton_kernels,
    )

    dynamo.install()
    aot_autograd.install()
    inductor.install(_compiler("regions"))
    decompositions.install(_compiler("target_names"))
    fake_results.install(_compiler("target_names"))
    failures.install(_compiler("fallback"))  # outermost: after what changes the same function
    caches.install(_compiler("cache_key"))
    packages.install(_compiler("packages"))
    triton_kernels.install()
    triton_inductor.install(_compiler("triton_device"))
    triton_compile.install(_compiler("triton_device"))


def _compiler(name: str) -> Callable[[], ModuleType]:
    """A part of the compiler backend, imported when the compiler first asks for it."""
    return functools.partial(importlib.import_module, f"torch_fl.compile.{name}")


def _apply_routes(extension: ModuleType) -> None:
    """Puts in force what the plugin, the configuration and the environment say about operators."""
    extension.set_fallback_rules(settings.FLAGOS_STRICT.read(), settings.FLAGOS_LOG_FALLBACK.read())
    if settings.FLAGOS_LOG_DISPATCH.read():
        extension.set_logging(True)
    if settings.FLAGOS_BREADCRUMBS.read():
        extension.set_breadcrumbs(True)
    plugin = selection.current().plugin
    routes = plugin.routes() if plugin else None
    configured = settings.FLAGOS_BACKEND_CONFIG.read() or settings.FLAGOS_OP.read()
    if not (configured or (routes and routes.defaults)):
        return  # every operator is on its own route, and nothing need be loaded for that
    from torch_fl.routing.engine import ENGINE

    ENGINE.start(routes or Routes())


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
