"""torch_fl: one PyTorch device, `flagos`, in front of every accelerator.

Importing this package selects a backend, registers the device and applies its routes; only in the
command line that waits until a command needs it. Nothing here imports torch by itself, so `torch`
and `torch_fl` can be imported in either order.
"""

import importlib
from typing import TYPE_CHECKING

import torch_fl_entry

if TYPE_CHECKING:
    from torch_fl import compile, interop, routing
    from torch_fl.migrate import migrate

__all__ = ["__version__", "compile", "flagos", "interop", "migrate", "routing"]
__version__ = "0.1.0"

if not torch_fl_entry.is_command_line:
    from torch_fl._activation import activate

    activate()

    from torch_fl import ecosystem, flagos, settings  # they need the device

    ecosystem.install()
    if _mode := settings.FLAGOS_MIGRATE.read():
        from torch_fl.migrate import migrate

        migrate(force=_mode == "force")


def __getattr__(name: str) -> object:
    """What most processes do not need is imported when it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
