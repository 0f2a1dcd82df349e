"""Owns: `torch-fl plugins`: the backends that are installed, and why each is used or not.

It imports them, as activation does, but not torch. One that ends the process is for the doctor.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_fl.cli.tables import Page
    from torch_fl.plugins.records import Record
    from torch_fl.plugins.selection import Selection


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `torch-fl plugins`."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--verbose", action="store_true", help="also print the tracebacks of what failed"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the records; always 0, for that is what was asked."""
    from torch_fl.cli import tables
    from torch_fl.plugins import selection

    with tables.others_on_stderr():
        chosen = selection.current()
    if arguments.json:
        tables.print_json(as_dict(chosen))
    else:
        _print(chosen, tables.Page(), verbose=arguments.verbose)
    return 0


def as_dict(chosen: Selection) -> dict[str, object]:
    """A selection, for JSON."""
    return {
        "plugin": chosen.plugin and chosen.plugin.name,
        "why": chosen.why,
        "error": chosen.error,
        "notes": list(chosen.notes),
        "plugins": [record.as_dict() for record in chosen.records],
    }


def _print(chosen: Selection, page: Page, *, verbose: bool) -> None:
    columns = ("plugin", "distribution", "version", "stage", "found", "devices", "why")
    page.table(columns, map(_cells, chosen.records))
    for record in chosen.records:
        details = [("error", record.error)] if record.error else []
        details += [("warning", warning) for warning in record.warnings]
        if details:
            page.heading(record.name)
            page.facts(details)
        if verbose and record.traceback:
            page.text(record.traceback.rstrip())
    if chosen.notes:
        page.heading("settings without effect")
        for note in chosen.notes:
            page.text(note)
    if chosen.error:
        page.heading("no plugin is used")
        page.text(chosen.error)


def _cells(record: Record) -> tuple[str, ...]:
    detection = record.detection
    if detection is None:
        found, devices = "-", "-"
    else:
        found = ("exact" if detection.exact else "yes") if detection.found else "no"
        devices = "-" if detection.devices is None else str(detection.devices)
    return (
        record.name,
        record.distribution or "-",
        record.version or "-",
        record.stage,
        found,
        devices,
        record.why,
    )
