"""Owns: the sections of the page of operator coverage on whole programs.

`torch_fl/testing/programs/evidence.py` says what is in the evidence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ci.dev.coverage_against import recorded_on
from ci.dev.markdown import table

KEY = "programs"
ABOUT = """\
Small programs, such as training steps and whole layers, on flagos and on `{native}` itself, in
processes of their own: all results compared, bit for bit. [Conformance](conformance.md) says what
the outcomes mean.
"""


def section(data: dict[str, Any], where: str) -> Iterator[str]:
    """The section of one file, which lies at `where`."""
    found, native = data[KEY], data["native"]
    head = f"{data['plugin']}, torch {data['torch']} ({data['kind']})"
    yield f"## Whole programs: {head}, against {native} itself\n"
    yield ABOUT.format(native=native)
    yield f"Recorded on {recorded_on([found])}, {found['date']}, in `{where}`.\n"
    counts = found["outcomes"]
    yield table(
        ("version", "programs", *counts),
        [(found["plugin_version"], sum(counts.values()), *counts.values())],
    )
    yield "### Programs that are neither equal nor skipped\n"
    if not found["named"]:
        yield "None.\n"
        return
    rows = [
        (f"`{name}`", entry["outcome"], "yes" if entry["as_expected"] else "no", entry["detail"])
        for name, entry in found["named"].items()
    ]
    yield table(("program", "outcome", "as it should be", "detail"), rows)
