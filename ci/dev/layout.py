"""Owns: where things lie in the repository, and which Python environment a command uses."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ci.dev.errors import UserError

Kind = Literal["pinned", "installed", "current"]

# Settings that would send our pip or Python somewhere else than the environment in question.
DIVERTING = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PYTHONHOME")


@dataclass(frozen=True)
class Layout:
    """The repository's own places."""

    root: Path

    @property
    def core(self) -> Path:
        return self.root / "packages" / "torch-fl-core"

    @property
    def constraints(self) -> Path:
        return self.root / "constraints" / "torch-2.13.txt"

    @property
    def lint_constraints(self) -> Path:
        return self.root / "constraints" / "lint.txt"

    @property
    def work(self) -> Path:
        """Logs, reports and the lock of `./dev`: everything that may be deleted at any time."""
        return self.root / "build" / "dev"


@dataclass(frozen=True)
class Environment:
    """One Python environment that torch-fl is built into.

    `pinned`: `.venv` with the torch of the constraints file. `installed`: `.venv-installed`, which
    sees the torch of the interpreter that runs `./dev`. `current`: that interpreter itself.
    """

    layout: Layout
    kind: Kind = "pinned"
    installed_torch: Path | None = None

    @property
    def folder(self) -> Path | None:
        """The virtual environment's folder; None when there is none."""
        names = {"pinned": ".venv", "installed": ".venv-installed"}
        return self.layout.root / names[self.kind] if self.kind in names else None

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python" if self.folder else Path(sys.executable)

    @property
    def flags(self) -> list[str]:
        """What the user has to say to get this environment again."""
        chosen: dict[str, list[str]] = {
            "pinned": [],
            "installed": ["--torch=installed"],
            "current": ["--torch=installed", "--no-venv"],
        }
        return chosen[self.kind]

    @property
    def state_file(self) -> Path:
        # Inside the virtual environment, so that deleting that deletes what we believe about it.
        if self.folder:
            return self.folder / "torch-fl-dev.json"
        return self.layout.work / "current-interpreter.json"

    def site_packages(self) -> list[Path]:
        if self.folder:
            return sorted(self.folder.glob("lib/python3*/site-packages"))
        user = sysconfig.get_path("purelib", f"{os.name}_user")
        return [Path(sysconfig.get_path("purelib")), Path(user)]

    def script(self, name: str) -> Path:
        """A console script of the environment, whether it exists or not."""
        if self.folder:
            return self.folder / "bin" / name
        paths = (sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user"))
        found = [Path(path) / name for path in paths if (Path(path) / name).exists()]
        return found[0] if found else Path(paths[0]) / name

    def torch_version_file(self) -> Path | None:
        """torch/version.py: says which torch is there without the seconds that an import takes."""
        if self.installed_torch:
            return self.installed_torch.parent / "version.py"
        found = [site / "torch" / "version.py" for site in self.site_packages()]
        return next((path for path in found if path.exists()), None)

    def variables(self, **extra: str) -> dict[str, str]:
        """The process environment for everything that runs in this Python environment."""
        values = {key: value for key, value in os.environ.items() if key not in DIVERTING}
        if self.kind == "pinned":
            # Another torch on PYTHONPATH would shadow the pinned one. The other kinds keep it: it
            # is one of the ways in which a vendor's image makes its torch importable.
            values.pop("PYTHONPATH", None)
        if self.folder:
            values["VIRTUAL_ENV"] = str(self.folder)
            values["PIP_USER"] = "0"
        # Build tools that were installed here (cmake, ninja) go before the machine's.
        values["PATH"] = os.pathsep.join([str(self.python.parent), values.get("PATH", os.defpath)])
        values["PIP_NO_INPUT"] = "1"
        values["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
        values["PIP_ROOT_USER_ACTION"] = "ignore"
        values.update(extra)
        return values


def find_environment(layout: Layout, torch: str, no_venv: bool) -> Environment:
    """The environment that the command line asks for.

    Raises UserError for `--no-venv` with the pinned torch, and when there is no installed torch.
    """
    if torch == "pinned":
        if no_venv:
            raise UserError(
                "--no-venv installs into the interpreter that runs this script, so it is only "
                "allowed together with --torch=installed (the pinned torch would replace yours)."
            )
        return Environment(layout)
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        raise UserError(
            f"--torch=installed: this interpreter ({sys.executable}) has no torch. Run the script "
            "with the interpreter that has it (`/path/to/python dev ...`), or leave the option "
            "out to get the pinned torch in .venv."
        )
    kind: Kind = "current" if no_venv else "installed"
    return Environment(layout, kind, Path(spec.origin))
