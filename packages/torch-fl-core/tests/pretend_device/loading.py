"""Owns: the pretend device in this process, and flagos on top of it."""

from __future__ import annotations

import importlib.util
import sys
import types
from typing import Any

import torch

TYPE = "hpu"


def load(library: str) -> None:
    """Makes `TYPE` a device of this process; `torch.ops.pretend` then says what it did.

    Must come before anything asks PyTorch for its accelerators.
    """
    torch.ops.load_library(library)
    module: Any = types.ModuleType(f"torch.{TYPE}")
    module._lazy_init = torch.ops.pretend.lazy_init
    module.is_available = lambda: True
    module.device_count = lambda: 2
    torch._register_device_module(TYPE, module)


def activate(device_type: str = TYPE, **declared: bool) -> None:
    """`import torch_fl` in a process whose backend stands on `device_type`; `declared` are further
    fields of its `DelegateRuntime`."""
    # The package is registered but not run yet: running it activates.
    spec = importlib.util.find_spec("torch_fl")
    assert spec is not None
    assert spec.loader is not None
    package = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    from torch_fl.plugins import discovery

    plugin = _plugin(device_type, declared)
    candidate = discovery.Candidate("pretend", None, None, __name__, lambda: plugin)
    discovery.discover = lambda: discovery.Discovery((candidate,), (), ())
    try:
        spec.loader.exec_module(package)
    except BaseException:
        del sys.modules[spec.name]  # as a failed import does
        raise


def _plugin(device_type: str, declared: dict[str, bool]) -> object:
    """A plugin that fits every machine and stands on `device_type`."""
    from torch_fl.plugins.spec import DelegateRuntime, Detection, Identity, Runtime, hookimpl

    class Plugin:
        @hookimpl
        def torch_fl_identity(self) -> Identity:
            return Identity("pretend", (1, 0))

        @hookimpl
        def torch_fl_detect(self) -> Detection:
            return Detection(found=True)

        @hookimpl
        def torch_fl_runtime(self) -> Runtime:
            return DelegateRuntime(device_type, **declared)

    return Plugin()
