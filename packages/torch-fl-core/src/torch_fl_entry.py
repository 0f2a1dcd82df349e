"""Owns: torch-fl's entry points. A leaf module: it imports neither torch nor torch_fl by itself.

`autoload` is called by `import torch` when torch itself is nearly imported; what it raises would
make `import torch` fail, so it raises nothing. `main` is the console script.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings

__all__ = ["autoload", "autoload_error", "is_command_line", "main", "natively"]

autoload_error: BaseException | None = None
"""What went wrong in `autoload`, if anything did; `import torch_fl` raises it for real."""

is_command_line = False
"""Whether this process is `torch-fl`, or one without flagos (`natively`). Importing torch_fl
activates nothing then: each command does, if it needs the device, and the doctor works where
activation, torch or a plugin is broken."""


def autoload() -> None:
    """Activates flagos where it takes nothing away: this torch has no other accelerator.

    `FLAGOS_AUTOLOAD=1` activates it in any case, `FLAGOS_AUTOLOAD=0` never. Where another backend
    already owns PrivateUse1, it stands down with one warning. Never raises, but for
    KeyboardInterrupt.
    """
    global autoload_error
    try:
        _explain_checkpoints()
        if "torch_fl" in sys.modules:
            return  # `import torch_fl` is under way, perhaps in another thread, and activates
        if _wanted():
            import torch_fl  # noqa: F401
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        autoload_error = error
        _warn(f"flagos was not activated by `import torch`: {_describe(error)}")


def natively(module: str, function: str, *arguments: object) -> None:
    """Calls a function of torch_fl in a process of its own in which flagos is not activated: what
    shows how PyTorch behaves without it. The first call in that process."""
    global is_command_line
    is_command_line = True
    getattr(importlib.import_module(module), function)(*arguments)


def main() -> int:
    """The command line, `torch-fl`."""
    global is_command_line
    is_command_line = True
    from torch_fl.cli.main import main as command_line

    return command_line()


def _wanted() -> bool:
    choice = os.environ.get("FLAGOS_AUTOLOAD", "")
    if choice in ("0", "1"):
        return choice == "1"
    import torch

    owner = torch._C._get_privateuse1_backend_name()
    if owner not in ("privateuseone", "flagos"):
        _warn(
            f"flagos stands down: {owner!r} already owns PrivateUse1, the one slot that PyTorch "
            "keeps for a device from outside."
        )
        return False
    accelerator = torch.accelerator.current_accelerator()
    # Counted, not asked whether it is available: that is a start for some, and then a process may
    # not fork any more.
    return accelerator is None or torch.get_device_module(accelerator).device_count() == 0


def _explain_checkpoints() -> None:
    """Lets `torch.load` say what a checkpoint of flagos needs, where flagos is not active."""
    import torch

    def refuse(storage: object, location: str) -> None:
        if location.partition(":")[0] != "flagos":
            return
        if torch._C._get_privateuse1_backend_name() != "flagos":
            raise RuntimeError(
                f"This checkpoint has tensors of device '{location}', but flagos is not active in "
                "this process. Either `import torch_fl` before torch.load, or load them elsewhere: "
                "torch.load(..., map_location='cpu')."
            )

    last = 1 + max(entry[0] for entry in torch.serialization._package_registry)
    torch.serialization.register_package(last, lambda storage: None, refuse)


def _warn(message: str) -> None:
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    except Warning:  # warnings are errors in this process: `import torch` must still succeed
        if sys.stderr is not None and not sys.stderr.closed:
            print(f"torch_fl: {message}", file=sys.stderr)


def _describe(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # an error whose text cannot be made
        return type(error).__name__
