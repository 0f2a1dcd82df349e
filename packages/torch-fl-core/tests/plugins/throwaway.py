"""Owns: throw-away wheels: written with zipfile, installed by pip, put on a process's path.

pip installs all of them once, into a folder that no process sees. `Shelf.site` then makes a folder
with some of them, as links to what pip wrote, by each distribution's RECORD.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Wheel:
    """A distribution with one module and, as a rule, one plugin, `name`, which is that module."""

    name: str
    source: str
    distribution: str = ""
    version: str = "1.0"
    module: str = ""
    reference: str = ""
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return self.distribution or f"torch-fl-{self.name}"

    @property
    def stem(self) -> str:
        return f"{self.title.replace('-', '_')}-{self.version}"

    def write(self, folder: Path) -> Path:
        """The wheel, as a file in `folder`."""
        module = self.module or self.title.replace("-", "_")
        info = f"{self.stem}.dist-info"
        entry = f"[torch_fl.plugins]\n{self.name} = {self.reference or module}\n"
        files = {
            f"{module}.py": textwrap.dedent(self.source),
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {self.title}\n"
            f"Version: {self.version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\n"
            "Tag: py3-none-any\n",
            f"{info}/entry_points.txt": entry,
        } | {name.format(info=info): text for name, text in self.files.items()}
        record = "".join(f"{name},{_digest(text)},{len(text)}\n" for name, text in files.items())
        files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
        path = folder / f"{self.stem}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            for name, text in files.items():
                wheel.writestr(name, text)
        return path


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256={base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


class Shelf:
    """Installed wheels by plugin or distribution, and sites that have some of them."""

    def __init__(self, folder: Path, wheels: Iterable[Wheel]) -> None:
        self.folder = folder
        self.wheels = {wheel.distribution or wheel.name: wheel for wheel in wheels}
        self._sites = 0

    def site(self, *names: str) -> str:
        """A folder for PYTHONPATH on which just these are installed."""
        self._sites += 1
        site = self.folder / f"site-{self._sites}"
        site.mkdir()
        for name in names:
            record = self.folder / "all" / f"{self.wheels[name].stem}.dist-info" / "RECORD"
            for file, *_ in csv.reader(record.read_text().splitlines()):
                target = site / file
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(self.folder / "all" / file)
        return str(site)


def install(wheels: Iterable[Wheel], folder: Path) -> Shelf:
    """`wheels` installed by pip, from files and from nowhere else."""
    wheels = list(wheels)
    files = [str(wheel.write(folder)) for wheel in wheels]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    command += ["--no-compile", "--disable-pip-version-check", f"--target={folder / 'all'}", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return Shelf(folder, wheels)
