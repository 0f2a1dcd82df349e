"""Owns: getting the device for a command: importing torch_fl does not activate it there."""

from __future__ import annotations

from torch_fl.cli.main import CommandError


def activate() -> None:
    """Activates flagos, as `import torch_fl` does elsewhere.

    Raises:
        CommandError: torch or torch_fl's binary cannot be loaded, another backend has the device's
            place, or the routes cannot be understood.
    """
    try:
        from torch_fl._activation import activate as activate_device

        activate_device()
    except Exception as error:  # also what a plugin's own code raises
        raise CommandError(
            f"flagos cannot be activated: {error}\n`torch-fl doctor` says more."
        ) from error
