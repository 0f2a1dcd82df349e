"""Owns: compiling the pretend device, once for each version of its sources and of torch."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import torch

SOURCES = Path(__file__).parent
CACHE = Path(__file__).parents[4] / "build" / "pretend_device"  # ignored by git
NAME = "libpretend_device.so"


def library() -> Path:
    """The compiled library; takes half a minute where it has to be made first.

    Raises RuntimeError with what the compiler said when it cannot be made.
    """
    command = _command()
    path = CACHE / _fingerprint(command) / NAME
    if path.exists():
        return path
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes that run side by side
        if not path.exists():
            _drop_others()
            _compile(command, path)
    return path


def _command() -> list[str]:
    include, binaries = (Path(torch.__file__).parent / folder for folder in ("include", "lib"))
    return [
        *shlex.split(os.environ.get("CXX", "g++")),
        *("-std=c++20", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra"),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *("-I", str(SOURCES), "-isystem", str(include)),
        *("-isystem", str(include / "torch/csrc/api/include")),
        # One translation unit: PyTorch's headers are most of the work and are read once.
        *("-x", "c++", "-", "-x", "none"),
        *(f"-L{binaries}", f"-Wl,-rpath,{binaries}", "-ltorch_cpu", "-lc10"),
    ]


def _fingerprint(command: list[str]) -> str:
    digest = hashlib.sha256("\0".join([torch.__version__, *command]).encode())
    for path in sorted([*SOURCES.glob("*.cpp"), *SOURCES.glob("*.h")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _drop_others() -> None:
    for old in CACHE.iterdir():
        if old.is_dir():
            shutil.rmtree(old, ignore_errors=True)


def _compile(command: list[str], path: Path) -> None:
    path.parent.mkdir()
    unfinished = path.with_suffix(".unfinished")
    everything = "".join(f'#include "{source.name}"\n' for source in sorted(SOURCES.glob("*.cpp")))
    done = subprocess.run(
        [*command, "-o", str(unfinished)],
        input=everything,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"$ {shlex.join(command)}\n{done.stderr}")
    unfinished.rename(path)
