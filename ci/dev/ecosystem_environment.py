"""Owns: the environment of the ecosystem's libraries, .venv-ecosystem, with a torch of its own.

The libraries bring many packages, which must not get into the environment that the core is tested
in. torch-fl is not installed a second time: what the first environment has of it is linked.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ci.dev import packages, process, state
from ci.dev.errors import StepError
from ci.dev.layout import Environment

BASE = ("torch", "numpy", *packages.RUNTIME)


class EcosystemEnvironment:
    """A virtual environment beside the first one."""

    def __init__(self, first: Environment) -> None:
        self.first = first
        self.folder = first.layout.root / ".venv-ecosystem"
        self.work = first.layout.root / "build" / "ecosystem"
        pins = first.layout.root / "ci" / "ecosystem" / "requirements.txt"
        self.constraints = (first.layout.constraints, pins)

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def variables(self, **extra: str) -> dict[str, str]:
        """For a program in it: no settings of the user's for torch-fl, no caches of his."""
        dropped = ("FLAGOS_", "HF_", "TORCH_DEVICE_BACKEND", "ACCELERATE_", "PYTHONPATH")
        own = self.first.variables()
        values = {key: value for key, value in own.items() if not key.startswith(dropped)}
        values["VIRTUAL_ENV"] = str(self.folder)
        values["PATH"] = f"{self.python.parent}:{values['PATH']}"
        values["PYTHONPATH"] = str(self.first.layout.root)
        values["HF_HOME"] = str(self.work / "hugging-face")
        return {**values, **extra}

    def make(self) -> None:
        """Makes it where it does not start, with torch and our own; links our own anew."""
        self.work.mkdir(parents=True, exist_ok=True)
        if self._starts():
            self._link()
            return
        print("dev: making .venv-ecosystem, with a torch of its own", flush=True)
        command = [str(self.first.python), "-m", "venv", "--clear", str(self.folder)]
        self._do(command, "venv", self.first.variables())
        self.install(BASE, "base")
        self._link()

    def install(self, requirements: Sequence[str], name: str) -> None:
        """Installs these in the versions of the constraints. Raises StepError with pip's words."""
        remembered = state.State(self.folder / "torch-fl-installed.json")
        inputs = state.fingerprint(requirements, self.constraints)
        if remembered.is_done(name, inputs):
            return
        command = [str(self.python), "-m", "pip", "install", "--progress-bar", "off"]
        for path in self.constraints:
            command += ["--constraint", str(path)]
        self._do([*command, "torch", *requirements], f"pip {name}", self.variables())
        remembered.record(name, inputs, 0.0)

    def _do(self, command: list[str], title: str, env: dict[str, str]) -> None:
        log = self.work / f"{title.replace(' ', '-')}.log"
        root = self.first.layout.root
        status = process.run_logged(command, env=env, cwd=root, log=log, title=title)
        if status:
            text = process.log_extract(log)
            raise StepError(f"{title} failed (exit code {status}).\n{text}\n  whole log: {log}")

    def _starts(self) -> bool:
        if not self.python.exists():
            return False
        done: list[str] = []
        command = [str(self.python), "-c", "import torch; print('it starts')"]
        root, env = self.first.layout.root, self.variables(FLAGOS_AUTOLOAD="0")
        process.run(command, env=env, cwd=root, limit=120, on_line=done.append)
        return any("it starts" in line for line in done)

    def _link(self) -> None:
        """Lets it import the torch-fl of the first environment, entry points included."""
        (site,) = self.folder.glob("lib/python3*/site-packages")
        for old in site.iterdir():
            if old.is_symlink():
                old.unlink()
        for source in self.first.site_packages():
            for path in source.iterdir():
                if "torch_fl" in path.name.replace("-", "_") and not (site / path.name).exists():
                    (site / path.name).symlink_to(path)
