"""Owns: the files of recorded evidence, of every kind: where they lie, what all of them begin with.

``<plugin>/<torch>-<ending>.json`` in a folder. The kinds are told apart by the key that holds what
was found: recording replaces what it has anew under that key and keeps the rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from .harness.results import Header, Kind

FORMAT: Final = 1


class EvidenceError(ValueError):
    """A run that is no evidence, or a file that is none."""


def usual_kind(plugin: str) -> Kind:
    """What a plugin runs on, where nobody says that it is emulated."""
    return "host" if plugin in ("host", "cpu") else "hardware"


def location(folder: Path, plugin: str, torch: str, ending: str) -> Path:
    """The file for a plugin and a PyTorch, whose build (``+cpu``) is left out."""
    return folder / plugin / f"{torch.partition('+')[0]}-{ending}.json"


def facts(header: Header) -> dict[str, Any]:
    """What is said of each recorded run: when it was, of what, and on what."""
    return {
        "date": header.date,
        "tier": header.tier,
        "plugin_version": header.plugin_version,
        "python": header.python,
        "machine": header.machine,
    }


def earlier(path: Path, plugin: str, key: str) -> dict[str, Any]:
    """What the file has under its key; nothing without a file. Raises EvidenceError."""
    if not path.exists():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        belongs = (data["format"], data["plugin"]) == (FORMAT, plugin)
        found = dict(data[key])
    except (ValueError, KeyError, TypeError) as error:
        raise EvidenceError(f"{path} is no evidence: {error}") from error
    if not belongs:
        raise EvidenceError(f"{path} is of another format or plugin")
    return found


def write(path: Path, head: Mapping[str, str], key: str, found: Mapping[str, Any]) -> Path:
    """Write the file, in one piece: the format, ``head`` ("plugin", "kind", "torch"...), then the
    key."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"format": FORMAT, **head, key: found}, indent=1)
    beside = path.with_name(path.name + ".new")
    beside.write_text(text + "\n", encoding="utf-8")
    beside.replace(path)
    return path
