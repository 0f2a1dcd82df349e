"""Owns: what must hold of a wheel before anybody installs it. Each check yields what is wrong."""

from __future__ import annotations

import base64
import csv
import hashlib
import posixpath
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from ci.dev.wheel_build import TORCH_LIBRARIES
from ci.dev.wheel_file import Wheel

# What a build, a tool or a test leaves behind; parts of a path, with wildcards.
LEFTOVERS = (
    *("tests", "test_*.py", "*_test.py", "conftest.py", "__pycache__", "*.pyc", ".*"),
    *("build", "csrc", "cmake", "CMakeFiles", "CMakeLists.txt", "CMakeCache.txt", "*.cmake"),
    *("*.o", "*.a", "*.cpp", "*.cc", "*.ninja", "*.log", "*.gch", "compile_commands.json"),
    *("*.orig", "*.rej", "*.swp", "*~", "*.egg-info", "*.libs", "*.data", "*.pth"),
)
ENTRY_POINTS: dict[str, dict[str, str]] = {
    "torch-fl": {},
    "torch-fl-core": {
        "torch.backends": "torch_fl",
        "torch_dynamo_backends": "flagos",
        "console_scripts": "torch-fl",
    },
}
PLUGIN_GROUP = "torch_fl.plugins"


@dataclass(frozen=True)
class Context:
    """What the wheels are measured by: the checkout, its torch; and the program patchelf."""

    root: Path
    torch_minor: str
    patchelf: Path


def contents(wheel: Wheel, context: Context) -> Iterator[str]:
    """Only files of our own package, and nothing that a build or a test left there."""
    module = wheel.name.replace("-", "_")
    own = {
        "torch-fl": (),
        "torch-fl-core": ("torch_fl/", "torch_fl_entry.py"),
    }.get(wheel.name, (f"{module}/",))
    for name in wheel.names:
        if name.startswith(f"{wheel.info}/"):
            continue
        if not name.startswith(own):
            yield f"{name} is no file of {wheel.name}'s own package"
        for part in name.split("/"):
            if any(fnmatch(part, pattern) for pattern in LEFTOVERS):
                yield f"{name} does not belong in a wheel"
    packages = [name for name in own if name.endswith("/")]
    for package in packages:
        for needed in ("__init__.py", "py.typed"):
            if package + needed not in wheel.files:
                yield f"{package}{needed} is missing"


def record(wheel: Wheel, context: Context) -> Iterator[str]:
    """RECORD lists every file once, with its size and hash."""
    own = f"{wheel.info}/RECORD"
    text = wheel.files.get(own, b"").decode("utf-8")
    rows = [row for row in csv.reader(text.splitlines()) if row]
    listed = [row[0] for row in rows]
    for name in sorted({*listed, *wheel.names}):
        if listed.count(name) != 1 or wheel.names.count(name) != 1:
            yield (
                f"{name} is {wheel.names.count(name)} times in the archive and "
                f"{listed.count(name)} times in RECORD"
            )
    for name, digest, size in (row[:3] for row in rows if row[0] != own):
        data = wheel.files.get(name, b"")
        sha = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        if (digest, size) != (f"sha256={sha}", str(len(data))):
            yield f"{name} has another hash or size than RECORD says"


def licences(wheel: Wheel, context: Context) -> Iterator[str]:
    """Apache-2.0, with the licence's text and a notice."""
    if wheel.metadata["License-Expression"] != "Apache-2.0":
        yield f"its metadata name the licence {wheel.metadata['License-Expression']!r}"
    for name in ("LICENSE", "NOTICE"):
        text = wheel.files.get(f"{wheel.info}/licenses/{name}")
        if not text:
            yield f"{name} is missing"
        elif name == "LICENSE" and text != (context.root / name).read_bytes():
            yield "its LICENSE is another text than the repository's"


def entry_points(wheel: Wheel, context: Context) -> Iterator[str]:
    """The doors by which torch, the shell and the core find it, leading to modules that exist."""
    found = wheel.entry_points()
    expected = ENTRY_POINTS.get(wheel.name)
    if expected is None:
        if not found.get(PLUGIN_GROUP):
            yield f"a plugin has an entry point in the group {PLUGIN_GROUP}, this has none"
        for group in sorted(set(found) & {"torch.backends", "console_scripts"}):
            yield f"{group} is the core's alone"
    elif {group: ", ".join(names) for group, names in found.items()} != expected:
        yield f"its entry points are {found}, expected {expected}"
    for target in (target for names in found.values() for target in names.values()):
        path = target.partition(":")[0].strip().replace(".", "/")
        if not {f"{path}.py", f"{path}/__init__.py"} & set(wheel.files):
            yield f"the entry point {target} leads to no module of the wheel"


def versions(wheel: Wheel, context: Context) -> Iterator[str]:
    """The windows of versions, as docs/compatibility-policy.md has them."""
    required = wheel.requirements()
    if wheel.name == "torch-fl-core":
        expected = f"=={context.torch_minor}.*"
        if required.get("torch") != expected:
            yield f"it requires torch {required.get('torch')}, but is built for torch {expected}"
        return
    if not _is_window(required.get("torch-fl-core", "")):
        yield "it must require torch-fl-core by a range with an upper end, such as ==0.1.*"
    ours = [
        (extra, name, window)
        for extra, names in wheel.extras().items()
        for name, window in names.items()
        if name.startswith("torch-fl-")
    ]
    for extra, name, window in ours:
        if not _is_window(window):
            yield f"the extra {extra} must require {name} by a range with an upper end"


def _is_window(specifier: str) -> bool:
    return bool(re.search(r"==[\d.]+\.\*|~=|<", specifier))


def libraries(wheel: Wheel, context: Context) -> Iterator[str]:
    """A native wheel runs where its tag says, and finds torch's libraries in torch's folder."""
    native = [name for name in wheel.files if fnmatch(posixpath.basename(name), "*.so*")]
    if not native:
        if wheel.platform != "any":
            yield f"it has no library, but its platform is {wheel.platform}"
        return
    if not wheel.platform.startswith("manylinux_"):
        yield f"its platform is {wheel.platform}: it has not been repaired"
    for name in native:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, posixpath.basename(name))
            file.write_bytes(wheel.files[name])
            needed = _patchelf("--print-needed", file, context).split()
            rpath = [
                entry for entry in _patchelf("--print-rpath", file, context).split(":") if entry
            ]
        yield from (f"{name}: {text}" for text in _search(wheel, name, needed, rpath))


def _search(wheel: Wheel, name: str, needed: list[str], rpath: list[str]) -> Iterator[str]:
    """What is wrong with the folders in which a library looks for the others that it needs."""
    here = posixpath.dirname(name)
    places = set()
    for entry in rpath:
        if not re.match(r"\$ORIGIN(/|$)", entry):
            yield f"its RPATH has {entry}, which is a place on the machine that built it"
        places.add(posixpath.normpath(posixpath.join(here, entry.replace("$ORIGIN", ".", 1))))
    own = {posixpath.basename(file): posixpath.dirname(file) for file in wheel.files}
    for library in needed:
        torch = any(fnmatch(library, pattern) for pattern in TORCH_LIBRARIES)
        place = own.get(library, "torch/lib" if torch else None)
        if place is not None and place not in places:
            yield f"it needs {library} of {place}, but its RPATH is {':'.join(rpath) or 'empty'}"


def _patchelf(option: str, file: Path, context: Context) -> str:
    answer = subprocess.run(
        [str(context.patchelf), option, str(file)], capture_output=True, text=True, check=True
    )
    return answer.stdout.strip()


Check = Callable[[Wheel, Context], Iterator[str]]
CHECKS: dict[str, Check] = {
    "contents": contents,
    "RECORD": record,
    "licences": licences,
    "entry points": entry_points,
    "version windows": versions,
    "libraries": libraries,
}
