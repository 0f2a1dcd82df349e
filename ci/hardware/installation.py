"""Owns: the environment of a visit: the core, built here or given as a wheel, and the plugin, both
installed beside the machine's own torch.

It is made anew in every visit, so that what is measured is what the working tree has.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

from steps import CORE, PYTHON, ROOT, VENV, Job, read

BUILD = ROOT / "build/hardware"
PLUGIN = ROOT / "packages/torch-fl-cuda"
SOURCES = CORE / "src"
GENERATED = ("torch_fl/_build.py",)
"""Python that the core's build adds."""
COMPILED = ("CMakeLists.txt", "cmake/**/*", "csrc/**/*", "include/**/*")
"""The core's files of which its libraries are made. A digest of them lies beside a wheel that was
built here, in a file with this ending:"""
DIGEST = ".sources"

OFFLINE = ("--no-deps", "--no-index", "--no-build-isolation")
INSTALL = (PYTHON, "-m", "pip", "install", "--force-reinstall", *OFFLINE)

CHOSEN = """
import torch, torch_fl
from torch_fl.plugins import selection
x = torch.ones(2, device="flagos") + 1
print(selection.current().plugin.name, x.device, torch.flagos.get_device_name())
assert selection.current().plugin.name == "cuda"
"""

# The plugin is named in the build's fingerprint even where only the core is installed: its sources
# are then found here.
FACTS = f"""
import json, platform, sys
sys.path += [{str(PLUGIN / "bench")!r}, {str(PLUGIN / "src")!r}]
import _environment, torch
gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none"
facts = dict(torch=torch.__version__, python=platform.python_version(), gpu=gpu)
with open(sys.argv[1], "w") as file:
    json.dump(dict(facts, build=_environment.build()), file)
"""


def install(job: Job, wheel: Path | None, *, plugin: bool) -> int:
    """Makes the environment; then the visit's facts are known."""
    _make_environment()
    if wheel is None:
        status, wheel = _build(job)
        if status != 0:
            return status
    changed = differences(wheel)
    if changed:
        job.log().write_text(
            f"{wheel} was built from other sources than {SOURCES} has: {', '.join(changed[:10])} "
            f"({len(changed)} files). Build it again, or leave --wheel out.\n",
            encoding="utf-8",
        )
        return 1
    status = job.run(*INSTALL, str(wheel))
    if status == 0 and plugin:
        status = job.run(*INSTALL, str(PLUGIN)) or job.run(PYTHON, "-c", CHOSEN)
    return status or _find_facts(job)


def _make_environment() -> None:
    """An environment of our own, in which all that this Python can import is found too."""
    venv.create(VENV, with_pip=False, clear=True)
    (site,) = VENV.glob("lib/*/site-packages")
    (site / "outer.pth").write_text("\n".join(path for path in sys.path if Path(path).is_dir()))


def _build(job: Job) -> tuple[int, Path]:
    """The core's wheel, in the folder of results: later visits can be given it."""
    with tempfile.TemporaryDirectory(dir=job.output) as folder:
        options = (*OFFLINE, f"--config-settings=build-dir={BUILD}", "-w", folder)
        status = job.run(PYTHON, "-m", "pip", "wheel", *options, str(CORE))
        made = [found.replace(job.output / found.name) for found in Path(folder).glob("*.whl")]
    if status != 0 or not made:
        return status or 1, job.output
    _digest_of(made[0]).write_text(compiled_digest(), encoding="utf-8")
    return 0, made[0]


def _digest_of(wheel: Path) -> Path:
    return wheel.with_name(wheel.name + DIGEST)


def compiled_digest() -> str:
    """Of the working tree's files."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in COMPILED for path in CORE.glob(pattern)):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(CORE).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def differences(wheel: Path) -> list[str]:
    """The core's Python files that a wheel lacks, or has otherwise than the working tree; and where
    they are known to be others, the sources of its libraries."""
    with zipfile.ZipFile(wheel) as archive:
        theirs = {
            name: archive.read(name)
            for name in archive.namelist()
            if name.endswith(".py") and name not in GENERATED
        }
    ours = {path.relative_to(SOURCES).as_posix(): path for path in SOURCES.rglob("*.py")}
    read_ours = {name: path.read_bytes() for name, path in ours.items()}
    names = sorted(theirs.keys() | read_ours.keys())
    found = [name for name in names if theirs.get(name) != read_ours.get(name)]
    digest = _digest_of(wheel)
    if digest.exists() and digest.read_text(encoding="utf-8") != compiled_digest():
        found.append("what is compiled")
    return found


def _find_facts(job: Job) -> int:
    file = job.visit.steps / "machine.json"
    file.unlink(missing_ok=True)
    status = job.run(PYTHON, "-c", FACTS, str(file), most=120)
    job.visit.facts.update(read(file))
    return status
