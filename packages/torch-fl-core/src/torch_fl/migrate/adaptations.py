"""Owns: what stands in the place of PyTorch's names in a process that has a migration in force.

Put there by the first migration of the process and taken away by the last; each stand-in holds in
the threads of a migration alone, and does what PyTorch does in the others.
"""

from __future__ import annotations

import functools
import sys
import threading
from typing import Any

import torch

from torch_fl._compat import cuda_names, engine, function_modes
from torch_fl._compat.replacing import Replacement
from torch_fl.migrate import checkpoints, cuda_module, scopes
from torch_fl.migrate.mode import DeviceNames
from torch_fl.migrate.names import renamed_arguments

__all__ = ["acquire", "release"]

_lock = threading.Lock()
_users = 0
_replacement: Replacement | None = None


def acquire() -> None:
    """For one more migration."""
    global _users, _replacement
    with _lock:
        if _users == 0:
            checkpoints.install()
            _run_backward_inside()
            _replacement = _stand_ins()
            _replacement.put()
        _users += 1


def release() -> None:
    """For one migration less."""
    global _users, _replacement
    with _lock:
        _users -= 1
        if _users == 0 and _replacement:
            _replacement.restore()
            _replacement = None


def _stand_ins() -> Replacement:
    cuda = cuda_module.StandIn(sys.modules["torch.cuda"], cuda_module.cuda)
    version = cuda_module.StandIn(sys.modules["torch.version"], cuda_module.version)
    start = threading.Thread.start
    return Replacement(
        [
            (torch, "cuda", cuda),
            (sys.modules, "torch.cuda", cuda),
            (torch, "version", version),
            (sys.modules, "torch.version", version),
            (threading.Thread, "start", scopes.inherited(start, DeviceNames)),
            *cuda_names.places(scopes.inside, _rename),
        ]
    )


def _rename(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    scope = scopes.current()
    args, kwargs, shown = renamed_arguments(args, kwargs)
    if scope and shown is not None:
        scope.add(f"{name}({shown})")
    return args, kwargs


@functools.cache
def _run_backward_inside() -> None:
    """Keeps the mode on while the autograd engine runs the user's hooks and functions.

    PyTorch puts a function mode aside for the call that the mode handles, and `Tensor.backward` is
    such a call.
    """

    def wrapper(run: engine.Run) -> engine.Run:
        @functools.wraps(run)
        def inside(*args: Any, **kwargs: Any) -> Any:
            mode = scopes.mode_in_force()
            if mode is None or mode in function_modes.stack():
                return run(*args, **kwargs)
            function_modes.push(mode)
            try:
                return run(*args, **kwargs)
            finally:
                function_modes.remove(mode)

        return inside

    engine.wrap(wrapper)
