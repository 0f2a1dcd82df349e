"""Owns: which FLAGOS_* variables this process was given, for commands that show them."""

from __future__ import annotations

import os

from torch_fl import settings


def given() -> dict[str, str]:
    """Those that are set, and what they say; misspelt ones too."""
    found = {name: os.environ[name] for name in settings.undeclared()}
    for setting in settings.SETTINGS:
        if isinstance(setting, settings.Family):
            found |= {f"{setting.prefix}{rest}": text for rest, text in setting.read().items()}
        elif text := setting.text():
            found[setting.name] = text
    return dict(sorted(found.items()))
