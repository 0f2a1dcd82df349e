"""Owns: the classes of Inductor's code generation that a Triton device is made of.

Reason: a device from outside gives Inductor a scheduling, a wrapper and lines of Python for its
state. How it gives them is a public function, what they derive from is not. Dated 2026-11, torch
2.11 to 2.14. Held by tests/compile/test_triton_target.py.
"""

from __future__ import annotations

from typing import Any

__all__ = ["op_overrides", "scheduling", "wrapper"]


def scheduling() -> type:
    """Triton's, as a class of the device's own: Inductor asks it whether it is Triton's."""
    from torch._inductor.codegen.triton import TritonScheduling

    class FlagosScheduling(TritonScheduling):
        pass

    return FlagosScheduling


def wrapper() -> type:
    """What writes the Python around kernels."""
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    return PythonWrapperCodegen


def op_overrides(raw_stream: str) -> Any:
    """Lines of generated Python: device state is torch.flagos'. `raw_stream`: "module:function",
    which gives a device's current stream as an address."""
    from torch._inductor.codegen.common import DeviceOpOverrides

    module, _, function = raw_stream.partition(":")

    class FlagosOpOverrides(DeviceOpOverrides):
        def import_get_raw_stream_as(self, name: str) -> str:
            return f"from {module} import {function} as {name}"

        def set_device(self, device_idx: int) -> str:
            return f"torch.flagos.set_device({device_idx})"

        def synchronize(self) -> str:
            return "torch.flagos.synchronize()"

        def device_guard(self, device_idx: int) -> str:
            return f"torch.flagos.device({device_idx})"

        def current_stream(self) -> str:
            return "torch.flagos.current_stream()"

    return FlagosOpOverrides()
