"""Owns: the sections of the page of operator coverage on a backend against its native device.

`torch_fl/testing/side_by_side_evidence.py` says what is in the evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ci.dev.markdown import table

KEY = "against"
COLUMNS = (
    "suite",
    "tier",
    "date",
    "version",
    "native runs",
    "pass natively",
    "pass on flagos",
    "rate",
    "equal to the last bit",
    "vary natively",
    "unequal",
)
ABOUT = """\
flagos on this backend and `{native}` itself, each in processes of its own, both against stock CPU;
counted are the cases that pass in every native run. Equal is what has the bits of one of these,
varying what has none of them where they differ among themselves.
"""
CHANCE = """\
A few native runs do not show everything that varies natively: kernels with atomic additions may
give the same bits twice by chance, and some results differ from process to process. A case that is
named here is that, or is a difference; more native runs tell.
"""


def section(data: dict[str, Any], where: str) -> Iterator[str]:
    """The section of one file, which lies at `where`."""
    suites = data[KEY]
    native = data["native"]
    yield f"## {data['plugin']} against {native} itself, torch {data['torch']} ({data['kind']})\n"
    yield ABOUT.format(native=native)
    yield f"Recorded on {recorded_on(suites.values())}, in `{where}`.\n"
    yield table(COLUMNS, [_row(name, block) for name, block in suites.items()])
    yield from _cases("Cases that fail on flagos alone", "failed", suites)
    yield from _cases("Cases that are not equal", "unequal", suites)


def recorded_on(blocks: Iterable[dict[str, Any]]) -> str:
    """The devices and machines of some blocks of evidence."""
    found = {
        ", ".join(
            part
            for part in (block["device_name"], block["machine"], f"Python {block['python']}")
            if part
        )
        for block in blocks
    }
    return "; ".join(sorted(found))


def _row(suite: str, block: dict[str, Any]) -> tuple[object, ...]:
    native, passed = block["native"], block["passed"]
    head = (suite, block["tier"], block["date"], block["plugin_version"], block["native_runs"])
    rest = (f"{block[name]:,}" for name in ("equal", "varying", "unequal"))
    return (*head, f"{native:,}", f"{passed:,}", f"{passed / native:.3%}", *rest)


def _cases(title: str, sort: str, suites: dict[str, Any]) -> Iterator[str]:
    yield f"### {title}\n"
    if not any(block[sort] for block in suites.values()):
        yield "None.\n"
        return
    if sort == "unequal":
        yield CHANCE
    rows = []
    for suite, block in suites.items():
        named = block[f"{sort}_cases"]
        of: dict[tuple[str, str], list[str]] = {}
        for name in named:
            entry, pass_name, case = name.split(" ", 2)
            of.setdefault((entry, pass_name), []).append(case)
        rows += [(suite, *key, ", ".join(cases)) for key, cases in of.items()]
        if more := block[sort] - len(named):
            rows.append((suite, "", "", f"{more:,} more"))
    yield table(("suite", "entry", "pass", "cases"), rows)
