"""Owns: tables in Markdown, for the pages that are made from recorded evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def line(cells: Iterable[object]) -> str:
    """One line of a table."""
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |\n"


def table(columns: Sequence[object], rows: Iterable[Iterable[object]]) -> str:
    """A table with its head."""
    return line(columns) + line(["---"] * len(columns)) + "".join(map(line, rows))
