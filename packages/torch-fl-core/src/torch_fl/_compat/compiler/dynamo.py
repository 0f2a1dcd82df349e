"""Owns: what Dynamo knows of flagos.

Reason: Dynamo traces calls of streams, events and devices for the device types that are registered
with it, and finds compiler backends of an installed distribution only by its entry points, which
reading takes its time and a source tree does not have. Both registrations are public functions;
when to call them is not: the modules are not loaded by `import torch`. Dated 2026-11, torch 2.11
to 2.14. Held by tests/compile/test_dynamo_contracts.py.
"""

from __future__ import annotations

from typing import Any

from torch_fl._compat.compiler import dynamo_calls, dynamo_contexts, dynamo_frames, dynamo_streams
from torch_fl._compat.importing import when_imported

__all__ = ["install"]


def install() -> None:
    """Registers flagos with Dynamo when that is imported."""
    when_imported("torch._dynamo.backends.registry", _register_backend)
    when_imported("torch._dynamo.device_interface", _register_interface)
    dynamo_calls.install()
    dynamo_contexts.install()
    dynamo_frames.install()
    dynamo_streams.install()


def _register_backend(registry: Any) -> None:
    def flagos(*args: Any, **kwargs: Any) -> Any:
        from torch_fl.compile import backend

        return backend.flagos(*args, **kwargs)

    def reset() -> None:
        from torch_fl.compile import backend

        backend.reset()

    flagos.reset = reset  # type: ignore[attr-defined]
    if "flagos" not in registry._BACKENDS:
        registry.register_backend(flagos, name="flagos")


def _register_interface(interfaces: Any) -> None:
    from torch_fl.compile import interface

    interfaces.register_interface_for_device("flagos", interface.make(interfaces.DeviceInterface))
