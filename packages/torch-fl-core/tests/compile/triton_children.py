"""Owns: child processes in which Triton compiles for a plugin's target."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from children import run_child
from throwaway import Shelf

HERE = Path(__file__).parent
TIMEOUT_S = 900.0  # a dozen compilations take half a minute of one core, and cores are shared

_BEGIN = """
import json, os, sys
import torch, torch_fl
"""


def run(shelf: Shelf, plugin: str, code: str, folder: Path, *wheels: str, **env: str) -> Any:
    """The child process that runs `code` under a plugin, with empty caches in `folder`."""
    path = [shelf.site(plugin, *wheels), str(HERE), os.environ.get("PYTHONPATH", "")]
    return run_child(
        _BEGIN + code,
        timeout=TIMEOUT_S,
        **{
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "FLAGOS_PLUGIN": plugin,
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "TRITON_CACHE_DIR": str(folder / "triton"),
            "TRITON_RECORD": str(folder / "record"),
            "FLAGOS_USE_FLAGTREE": None,
            **env,
        },
    )


def said(shelf: Shelf, plugin: str, code: str, folder: Path, *wheels: str, **env: str) -> Any:
    """What the child prints last, as JSON."""
    child = run(shelf, plugin, code, folder, *wheels, **env)
    assert child.returncode == 0, f"{child.stdout}\n{child.stderr}"
    return json.loads(child.stdout.splitlines()[-1])


def record(folder: Path) -> list[dict[str, Any]]:
    """What policies and the backend that records were given, in order."""
    return [json.loads(line) for line in (folder / "record").read_text().splitlines()]
