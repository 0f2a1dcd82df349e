"""Owns: a second environment that has what the first one has, torch above all, but nothing of ours.

A second torch would take a GB and minutes. So each package of the first environment is linked into
the second one's own folder: there it is installed, for pip as for the libraries that look for
torch's beside themselves. What is ours (and .pth files, which are hooks of editable installs) is
left out. Only pip and wheels of ours may write there: an upgrade of a linked package would go
through the link. So pip is kept from every index and from the user's configuration.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ci.dev import process
from ci.dev.errors import StepError
from ci.dev.layout import Environment

LIMIT = 240.0  # seconds for one program


@dataclass(frozen=True)
class Answer:
    """How a program ended and what it wrote, standard error included."""

    status: int
    text: str


class Second:
    """The environment in `folder`, made anew."""

    def __init__(self, environment: Environment, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self._first = environment
        shutil.rmtree(folder, ignore_errors=True)
        venv = [str(environment.python), "-m", "venv", "--without-pip", str(folder / "venv")]
        made = self._run(venv, environment.variables())
        if made.status:
            raise StepError(f"the second environment could not be made.\n{made.text}")
        (self.site,) = (folder / "venv").glob("lib/python3*/site-packages")
        for source in _packages(environment):
            for path in sorted(source.iterdir()):
                if not _left_out(path.name) and not (self.site / path.name).exists():
                    (self.site / path.name).symlink_to(path)
        self.home.mkdir()
        (folder / "pip-home").mkdir()

    @property
    def bin(self) -> Path:
        return self.folder / "venv" / "bin"

    def variables(self, **extra: str) -> dict[str, str]:
        """Of a user who has set nothing: no FLAGOS_*, no PYTHONPATH, no settings of pip's."""
        values = {
            key: value
            for key, value in self._first.variables().items()
            if not key.startswith(("FLAGOS_", "PIP_", "PYTHON", "XDG_", "TORCH_DEVICE_BACKEND"))
        }
        values["VIRTUAL_ENV"] = str(self.folder / "venv")
        values["PATH"] = os.pathsep.join([str(self.bin), os.environ.get("PATH", os.defpath)])
        values["HOME"] = str(self.home)
        values["PYTHONDONTWRITEBYTECODE"] = "1"  # the linked packages are not ours to write into
        values["PIP_CONFIG_FILE"] = os.devnull
        values["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
        values["PIP_NO_INPUT"] = "1"
        values["PIP_ROOT_USER_ACTION"] = "ignore"
        return {**values, **extra}

    def run(self, command: Sequence[str], **variables: str) -> Answer:
        """Runs a program of the environment (its name) in the empty home folder."""
        words = [str(self.bin / command[0]), *command[1:]]
        if "pip" in command:
            # A home of its own: it asks other programs for their versions; rustc's writes there.
            variables["HOME"] = str(self.folder / "pip-home")
        return self._run(words, self.variables(**variables), self.home)

    def python(self, program: str, **variables: str) -> Answer:
        return self.run(["python", "-c", program], **variables)

    def pip(self, *words: str, links: Sequence[Path]) -> Answer:
        """`pip install` from these folders alone."""
        found = [word for folder in links for word in ("--find-links", str(folder))]
        command = ["python", "-m", "pip", "install", "--no-index", "--no-cache-dir", *found]
        return self.run([*command, "--no-compile", *words])

    def files(self) -> set[str]:
        """The virtual environment's files, links aside, relative to the folder of it all."""
        return {
            str(Path(path, name).relative_to(self.folder))
            for path, _, names in os.walk(self.folder / "venv")
            for name in names
            if not Path(path, name).is_symlink()
        }

    def _run(self, command: list[str], env: dict[str, str], cwd: Path | None = None) -> Answer:
        lines: list[str] = []
        cwd = cwd or self._first.layout.root
        status = process.run(command, env=env, cwd=cwd, limit=LIMIT, on_line=lines.append)
        return Answer(status, "".join(lines))


def _packages(environment: Environment) -> list[Path]:
    """The folders in which the first environment finds packages, in its order."""
    program = "import json, sys; print(json.dumps(sys.path[1:]))"
    answer = subprocess.run(
        [str(environment.python), "-c", program],
        env=environment.variables(),
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [Path(path) for path in json.loads(answer.stdout) if path.endswith("-packages")]
    return [path for path in paths if path.is_dir()]


def _left_out(name: str) -> bool:
    plain = name.lower().replace("-", "_")
    return "torch_fl" in plain or name.endswith(".pth") or name in ("__pycache__", "README.txt")
