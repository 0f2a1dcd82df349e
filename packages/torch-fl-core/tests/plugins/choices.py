"""Owns: one selection in a child process in which certain wheels are installed, without torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from children import output_of_child
from throwaway import Shelf

# The package is registered but not run: running it would activate, and import torch.
WITHOUT_ACTIVATION = """
import importlib.util, sys
spec = importlib.util.find_spec("torch_fl")
sys.modules["torch_fl"] = importlib.util.module_from_spec(spec)
"""
_CODE = f"""
{WITHOUT_ACTIVATION}
import json
from torch_fl.plugins import selection
chosen = selection.select()
assert chosen is selection.current()
assert "torch" not in sys.modules, "torch was imported"
print(json.dumps({{
    "plugin": chosen.plugin and chosen.plugin.name,
    "runtime": chosen.runtime and repr(chosen.runtime),
    "error": chosen.error, "why": chosen.why, "notes": chosen.notes,
    "records": [record.as_dict() for record in chosen.records],
    "imported": sorted(name for name in sys.modules if name.startswith("torch_fl_")),
}}))
"""


@dataclass(frozen=True)
class Chosen:
    """A Selection as it came out of the child. `imported`: the plugins' modules."""

    plugin: str | None
    runtime: str | None
    error: str | None
    why: str
    notes: list[str]
    records: list[dict[str, Any]]
    imported: list[str]

    def record(self, name: str) -> dict[str, Any]:
        """The one record of a plugin."""
        (found,) = (record for record in self.records if record["name"] == name)
        return found


def choose(
    shelf: Shelf, *names: str, root: Path | None = None, path: str | None = None, **env: str
) -> Chosen:
    """What is chosen where these are installed (or what is on `path` is), on the machine under
    `root` (default: an empty one), with these variables."""
    settings = dict.fromkeys(
        ("FLAGOS_PLUGIN", "FLAGOS_PLUGINS_ALLOW", "FLAGOS_DISABLE_PLUGINS", "FLAGOS_HOST_DEVICES")
    )
    variables: dict[str, str | None] = settings | env
    output = output_of_child(
        _CODE,
        PYTHONPATH=path or shelf.site(*names),
        FLAGOS_DEVICE_ROOT=str(root or shelf.folder),
        **variables,
    )
    return Chosen(**json.loads(output))
