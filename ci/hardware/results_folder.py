"""Owns: the folder of results from visit to visit: results of different builds do not mix, and all
of it travels as one file."""

from __future__ import annotations

import fnmatch
import itertools
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

BUILD_ID = "build-id"
OLD = "old-"
LIMIT = 15 << 20
"""Bytes of a package; larger files do not come back from every machine."""

KEPT = (
    BUILD_ID,
    f"{OLD}*",
    "*.whl*",
    # What is native does not depend on our build. (The smoke set may have more graphs than before:
    # its step goes on with them.)
    "native*.jsonl",
    "graphs-cuda*.jsonl",
    "operators-cuda.jsonl",
    *(f"steps/{name}.*" for name in ("native*", "operators-cuda")),
    # A benchmark's rows name their build themselves.
    "performance.json",
    "compile.json",
    *(f"steps/{name}.*" for name in ("install", "machine")),
)
"""What stays where it is when another build comes."""


def put_aside(output: Path, build: str) -> Path | None:
    """Moves the results of another build than this one into a folder of their own, if there are
    any; returns the folder."""
    mark = output / BUILD_ID
    before = mark.read_text(encoding="utf-8").strip() if mark.exists() else "unknown"
    found = [] if before == build else [*_of_a_build(output)]
    folder = _unused(output / f"{OLD}{before}") if found else None
    for path in found:
        assert folder is not None
        to = folder / path.relative_to(output)
        to.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, to)
    mark.write_text(f"{build}\n", encoding="utf-8")
    return folder


def _of_a_build(output: Path) -> Iterator[Path]:
    for path in sorted(output.rglob("*")):
        name = path.relative_to(output).as_posix()
        if path.is_file() and not any(fnmatch.fnmatch(name, kept) for kept in KEPT):
            yield path


def _unused(folder: Path) -> Path:
    others = (folder.with_name(f"{folder.name}-{number}") for number in itertools.count(2))
    return next(each for each in itertools.chain([folder], others) if not each.exists())


def pack(output: Path, package: Path, began: float) -> None:
    """Writes the folder to one compressed file. Wheels that were there before the visit `began`
    are left out, and so are the results of other builds if it grew too large with them."""
    package.parent.mkdir(parents=True, exist_ok=True)
    for with_old in (True, False):
        _write(output, package, began, with_old=with_old)
        if package.stat().st_size <= LIMIT:
            return
    print(f"{package} has {package.stat().st_size} bytes, more than {LIMIT}", flush=True)


def _write(output: Path, package: Path, began: float, *, with_old: bool) -> None:
    new = package.with_name(package.name + ".new")

    def chosen(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        path = Path(info.name)
        known = ".whl" in path.suffixes and info.mtime < began
        itself = output / path in (new, package)
        old = not with_old and path.parts[:1] and path.parts[0].startswith(OLD)
        return None if known or itself or old else info

    with tarfile.open(new, "w:gz", compresslevel=6) as archive:
        for path in sorted(output.iterdir()):
            archive.add(path, path.name, filter=chosen)
    os.replace(new, package)
