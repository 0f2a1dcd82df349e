"""torch_fl: one PyTorch device, `flagos`, in front of every accelerator.

Importing this package selects a backend, registers the device and applies its routes; only in the
command line that waits until a command needs it. Nothing here imports torch by itself, so `torch`
and `torch_fl` can be imported in either order.
"""

import torch_fl_entry

__all__ = ["__version__", "flagos", "migrate", "routing"]
__version__ = "0.1.0"

if not torch_fl_entry.is_command_line:
    from torch_fl._activation import activate

    activate()

    from torch_fl import ecosystem, flagos, routing, settings  # they need the device
    from torch_fl.migrate import migrate

    ecosystem.install()
    if _mode := settings.FLAGOS_MIGRATE.read():
        migrate(force=_mode == "force")
