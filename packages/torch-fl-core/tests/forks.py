"""Owns: running many small pieces of code, each in a process of its own that has imported torch.

Importing torch is most of what a child process costs; here it is imported once and the process is
forked for each piece. torch_fl is not imported, so activation can be tried again and again.
"""

from __future__ import annotations

import json
import os
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from children import output_of_child

import torch_fl_entry

if TYPE_CHECKING:
    from collections.abc import Mapping

_PARENT = """
import json, os, sys, tempfile, traceback
import torch
import torch_fl_entry
assert "torch_fl" not in sys.modules, "importing torch activated flagos"

def outcome(name, code):
    files = [tempfile.TemporaryFile() for _ in range(2)]
    pid = os.fork()
    if pid == 0:
        for stream, file in enumerate(files, start=1):
            os.dup2(file.fileno(), stream)
        status = 0
        try:
            exec(compile(code, name, "exec"), {"__name__": "__main__"})
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush(); sys.stderr and sys.stderr.flush()
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    texts = []
    for file in files:
        file.seek(0)
        texts.append(file.read().decode(errors="replace"))
    return {"status": status, "out": texts[0], "err": texts[1]}

print(json.dumps({name: outcome(name, code) for name, code in json.loads(CASES).items()}))
"""


@dataclass(frozen=True)
class Outcome:
    """What became of one piece of code: exit status, standard output and standard error."""

    status: int
    out: str
    err: str


def run_forks(cases: Mapping[str, str], **env: str | None) -> dict[str, Outcome]:
    """Run each of `cases` (name to Python source) and return what became of it, by name.

    `env` are environment variables on top of this process's, as in `children.run_child`.
    """
    sources = json.dumps({name: textwrap.dedent(code) for name, code in cases.items()})
    code = f"CASES = {sources!r}\n{_PARENT}"
    outcomes = json.loads(output_of_child(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0", **env))
    return {name: Outcome(**outcome) for name, outcome in outcomes.items()}


def advertise(folder: Path) -> str:
    """A PYTHONPATH on which the distribution says its entry points, be it installed or not.

    What says them is written into `folder`.
    """
    info = folder / "torch_fl_core-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-fl-core\nVersion: 0.1.0\n")
    entries = "[torch.backends]\ntorch_fl = torch_fl_entry:autoload\n"
    (info / "entry_points.txt").write_text(entries)
    source = Path(torch_fl_entry.__file__).parent
    paths = [str(folder), str(source), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.pathsep.join(paths)
