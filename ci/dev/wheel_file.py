"""Owns: reading a wheel: its name, metadata, entry points and files, without installing it."""

from __future__ import annotations

import configparser
import re
import zipfile
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Wheel:
    """A wheel on disk. Its files are read into memory (ours are a few MB)."""

    path: Path

    @cached_property
    def files(self) -> dict[str, bytes]:
        """Name in the archive to contents."""
        with zipfile.ZipFile(self.path) as archive:
            return {
                item.filename: archive.read(item)
                for item in archive.infolist()
                if not item.is_dir()
            }

    @cached_property
    def names(self) -> list[str]:
        """Names as the archive has them: one that is there twice is twice in the list."""
        with zipfile.ZipFile(self.path) as archive:
            return [item.filename for item in archive.infolist() if not item.is_dir()]

    @property
    def info(self) -> str:
        """The folder of the metadata, as the file's name demands it."""
        return "-".join(self.path.name.split("-")[:2]) + ".dist-info"

    @cached_property
    def metadata(self) -> Message:
        text = self.files.get(f"{self.info}/METADATA", b"").decode("utf-8")
        return Parser().parsestr(text)

    @property
    def name(self) -> str:
        """The distribution's name, normalised: torch-fl-core."""
        return re.sub(r"[-_.]+", "-", self.path.name.split("-")[0]).lower()

    @property
    def version(self) -> str:
        return str(self.metadata["Version"])

    @property
    def platform(self) -> str:
        """The last of the name's tags, such as any or manylinux_2_28_x86_64."""
        return self.path.stem.split("-")[-1]

    def requirements(self) -> dict[str, str]:
        """What it requires without an extra: normalised name to the rest, such as `==2.13.*`."""
        found = {}
        for line in self.metadata.get_all("Requires-Dist") or []:
            requirement, _, marker = line.partition(";")
            if "extra" not in marker:
                name, rest = _split(requirement)
                found[name] = rest
        return found

    def extras(self) -> dict[str, dict[str, str]]:
        """Each extra with what it requires in addition."""
        names = self.metadata.get_all("Provides-Extra") or []
        found: dict[str, dict[str, str]] = {name: {} for name in names}
        for line in self.metadata.get_all("Requires-Dist") or []:
            requirement, _, marker = line.partition(";")
            extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
            if extra:
                name, rest = _split(requirement)
                found.setdefault(extra[1], {})[name] = rest
        return found

    def entry_points(self) -> dict[str, dict[str, str]]:
        """Group to name to `module:attribute`."""
        parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        parser.read_string(self.files.get(f"{self.info}/entry_points.txt", b"").decode("utf-8"))
        return {group: dict(parser[group]) for group in parser.sections()}


def _split(requirement: str) -> tuple[str, str]:
    name, rest = re.fullmatch(r"([A-Za-z0-9._-]+)\s*(.*)", requirement.strip()).groups()  # type: ignore[union-attr]
    return re.sub(r"[-_.]+", "-", name).lower(), rest.strip(" ()")
