"""Owns: a small copy of this repository in which `./dev` can be tried without pip or torch.

Its environment's interpreter is a stand-in: it writes down how it was called and does as if.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ci.dev.cli import ROOT
from ci.dev.layout import Environment, Layout

STAND_IN = """#!{python}
import json, pathlib, subprocess, sys
here = pathlib.Path(sys.argv[0]).parent
words = sys.argv[1:]
plan = json.loads((here / "plan.json").read_text()) if (here / "plan.json").exists() else {{}}
with (here / "calls").open("a") as calls:
    calls.write(json.dumps(words) + "\\n")
site = here.parent / "lib" / "python3.11" / "site-packages"

def installed(name):
    info = site / (name.lower().replace("-", "_") + "-1.0.dist-info")
    info.mkdir(parents=True, exist_ok=True)
    for file in ("INSTALLER", "RECORD"):
        (info / file).write_text("")

if words[0] == "-c":
    print("3 11" if "version_info" in words[1] else "", end="")
elif words[:3] == ["-m", "pip", "install"]:
    if plan.get("hang"):
        child = subprocess.Popen(["sleep", "60"])
        (here / "grandchild").write_text("%d\\n" % child.pid)
        child.wait()
    if plan.get("pip"):
        print("ERROR: error: " + plan["pip"])
        sys.exit(1)
    if "--editable" in words:
        installed("torch_fl_core")
        (here / "torch-fl").write_text("#!/bin/sh\\necho demo $*\\nexit 3\\n")
        (here / "torch-fl").chmod(0o755)
    for name in words[3:]:
        if not name.startswith(("-", "/")):
            installed(name)
    (site / "torch").mkdir(parents=True, exist_ok=True)
    (site / "torch" / "version.py").write_text("__version__ = '2.13.0+cpu'")
elif words[:2] == ["-m", "pytest"]:
    report = next(w for w in words if w.startswith("--junitxml=")).partition("=")[2]
    passed, failed = plan.get("pytest", [2, 0])
    pathlib.Path(report).write_text(
        '<testsuites><testsuite tests="%d" failures="%d" errors="0" skipped="1"/></testsuites>'
        % (passed + failed + 1, failed)
    )
    sys.exit(1 if failed else 5 if not passed else 0)
else:
    print(plan.get("module", "40 passed, 0 failed"))
"""


@dataclass
class Copy:
    """The small repository: files, and `./dev` in it."""

    root: Path

    @property
    def environment(self) -> Environment:
        return Environment(Layout(self.root))

    @property
    def core(self) -> Path:
        return self.environment.layout.core

    def plan(self, **what: object) -> None:
        """What the stand-in does from now on: pip=message (pip fails), hang=True (pip hangs),
        pytest=[passed, failed], module=text."""
        (self.root / ".venv" / "bin" / "plan.json").write_text(json.dumps(what))

    def calls(self, word: str) -> list[list[str]]:
        """How the stand-in was called with that word among its arguments, since the copy exists."""
        path = self.root / ".venv" / "bin" / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [call for call in map(json.loads, lines) if word in call]

    def test_runs(self) -> list[list[str]]:
        return [call for call in self.calls("pytest") if call[:2] == ["-m", "pytest"]]

    def dev(
        self, *words: str, cwd: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs `./dev` in the copy."""
        env = {**os.environ, "CI": "true", "MAX_JOBS": "1", **variables}
        return subprocess.run(
            [sys.executable, str(self.root / "dev"), *words],
            cwd=cwd or self.root,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    """A repository in a folder with a space in its name, with everything but real packages."""
    root = tmp_path / "a checkout"
    root.mkdir()
    shutil.copy(ROOT / "dev", root / "dev")
    (root / "ci" / "tests").mkdir(parents=True)
    (root / "packages" / "torch-fl-cuda" / "tests").mkdir(parents=True)
    shutil.copy(ROOT / "ci" / "__init__.py", root / "ci")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "ci" / "dev", root / "ci" / "dev", ignore=ignore)
    shutil.copytree(ROOT / "constraints", root / "constraints")
    (root / "pyproject.toml").write_text("")
    core = root / "packages" / "torch-fl-core"
    for path, text in {
        "pyproject.toml": "",
        "CMakeLists.txt": "",
        "csrc/device/guard.cpp": "int a;",
        "include/flagos/runtime.h": "int b;",
        "src/torch_fl/__init__.py": "",
        "src/torch_fl/testing/__main__.py": "",
        "tests/test_core.py": "",
        "tests/compile/test_compile.py": "",
        "tests/plugins/test_plugins.py": "",
        "tests/cli/test_cli.py": "",
        "bench/dispatch.py": "",
        "bench/_timing.py": "",
    }.items():
        (core / path).parent.mkdir(parents=True, exist_ok=True)
        (core / path).write_text(text)
    python = root / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(STAND_IN.format(python=os.path.realpath(sys.executable)))
    python.chmod(0o755)
    return Copy(root)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """The pinned environment of an empty repository."""
    return Environment(Layout(tmp_path))
