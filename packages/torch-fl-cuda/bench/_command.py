"""Owns: what the commands of the benchmarks share: options, a row's reason, how a run concludes.

Exit status: 0, everything that was asked for is measured and right; 1, something is missing, has
failed or is wrong (with --strict also: is over its goal); 2, the command was wrong or a process did
not start.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import _table
from _results import Results
from _rows import Row


def program(name: str, about: str, rows: str) -> argparse.ArgumentParser:
    """The command line of `./dev bench NAME`, without what only it has."""
    found = argparse.ArgumentParser(
        prog=f"./dev bench {name}",
        description=about,
        epilog=f"rows:\n{rows}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = found.add_argument
    add("--json", type=Path, metavar="FILE", help="where results are; what it has stays")
    add("--pairs", type=int, default=5, metavar="N", help="pairs of processes (5) for a row")
    add("--quick", action="store_true", help="tiny sizes: tries the benchmark, measures nothing")
    add("--reason", nargs=2, metavar=("ROW", "TEXT"), help="why a row misses, into the file")
    add("--strict", action="store_true", help="exit with 1 for a row over its goal, too")
    return found


def give_reason(results: Results, name: str, text: str) -> int:
    """Keeps why a row misses with the row; the exit status."""
    if name not in results.rows:
        print(f"error: {name} has no results that could have a reason", file=sys.stderr)
        return 2
    results.rows[name]["reason"] = text
    results.save()
    return 0


def conclude(rows: Sequence[Row], results: Results, missing: Sequence[str], *, strict: bool) -> int:
    """Prints what is known of the rows, and which are not complete; the exit status."""
    print()
    records = [results.rows.get(row.name, {}) for row in rows]
    for row, record in zip(rows, records, strict=True):
        print("\n".join([*_table.lines(row, record), *_table.operator_lines(record)]), flush=True)
    if missing:
        print(f"not complete: {'; '.join(missing)}. The same command goes on.")
    bad = ("wrong", "over") if strict else ("wrong",)
    return int(bool(missing) or any(record.get("verdict") in bad for record in records))
