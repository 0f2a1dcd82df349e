"""Owns: the report of what ran where: operator, route, calls and device time of a block of code."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_fl import _C

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["Fallback", "Report", "Row", "fallbacks", "report"]

FALLBACK_ROUTE = "cpu"

_lock = threading.Lock()
_open = 0  # reports being recorded now; the runtime observes while there is one


@dataclass(frozen=True)
class Row:
    """Calls of one operator by one route."""

    operator: str
    """Name with overload, as in "aten::add.Tensor"."""
    route: str
    calls: int
    device_time_s: float
    """Time on the device in seconds, all calls together."""
    bytes_moved: int = 0
    """Bytes copied to the CPU and back, on the cpu route."""


@dataclass(frozen=True)
class Fallback:
    """Calls of one operator that PyTorch's CPU kernel ran on copies, since the process began."""

    operator: str
    calls: int
    bytes_moved: int


def fallbacks() -> tuple[Fallback, ...]:
    """All fallbacks since the process began, most bytes first. They are always counted."""
    rows = (Fallback(*row) for row in _C.fallbacks())
    return tuple(sorted(rows, key=lambda row: (-row.bytes_moved, row.operator)))


def _moved() -> dict[str, int]:
    return {operator: moved for operator, _, moved in _C.fallbacks()}


def _observed() -> dict[tuple[str, str], tuple[int, int]]:
    return {(op, route): (calls, ns) for op, route, calls, ns in _C.observations()}


class Report:
    """What ran on flagos inside a `with` block, in all threads; see `report`.

    Readable inside the block (what ran so far) and after it. Reports may nest and overlap; each
    counts from its own beginning.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[str, str], tuple[int, int]] | None = None
        self._moved_before: dict[str, int] = {}
        self._rows: tuple[Row, ...] | None = None

    def __enter__(self) -> Self:
        global _open
        if self._before is not None:
            raise RuntimeError("A report records one block; make another with report()")
        with _lock:
            if _open == 0:
                _C.start_counting()
            self._before = _observed()
            self._moved_before = _moved()
            _open += 1
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        global _open
        with _lock:
            try:
                self._rows = self._since_before()
            finally:
                _open -= 1
                if _open == 0:
                    _C.stop_counting()

    def _since_before(self) -> tuple[Row, ...]:
        if self._before is None:
            raise RuntimeError("This report was not started; use it in a with statement")
        rows = []
        moved = _moved()
        for (operator, route), (calls, ns) in _observed().items():
            calls_before, ns_before = self._before.get((operator, route), (0, 0))
            if calls == calls_before:
                continue
            copied = 0
            if route == FALLBACK_ROUTE:
                copied = moved.get(operator, 0) - self._moved_before.get(operator, 0)
            seconds = (ns - ns_before) / 1e9
            rows.append(Row(operator, route, calls - calls_before, seconds, copied))
        rows.sort(key=lambda row: (-row.device_time_s, row.operator, row.route))
        return tuple(rows)

    @property
    def rows(self) -> tuple[Row, ...]:
        """One row for each operator and route that ran, most device time first."""
        return self._since_before() if self._rows is None else self._rows

    @property
    def fallbacks(self) -> tuple[Row, ...]:
        """The rows that PyTorch's CPU kernels ran on copies, because no other route could."""
        return tuple(row for row in self.rows if row.route == FALLBACK_ROUTE)

    @property
    def bytes_moved(self) -> int:
        """Bytes that fallbacks copied to the CPU and back."""
        return sum(row.bytes_moved for row in self.rows)

    def table(self, limit: int | None = None) -> str:
        """The rows as aligned text, with their sum as the last line.

        Args:
            limit: show this many rows at most, and the rest together as one line.

        Raises:
            ValueError: a negative limit.
        """
        if limit is not None and limit < 0:
            raise ValueError(f"limit must be 0 or more, but got {limit}")
        rows = self.rows
        shown = rows if limit is None else rows[:limit]
        lines = [("operator", "route", "calls", "device time"), *map(_cells, shown)]
        if rest := rows[len(shown) :]:
            lines.append(_sum_of(rest, f"... {len(rest)} more"))
        lines.append(_sum_of(rows, "total"))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}"
            for a, b, c, d in lines
        ]
        rule = "-" * len(text[0])
        return "\n".join([text[0], rule, *text[1:-1], rule, text[-1]])

    def __str__(self) -> str:
        return self.table()


def _cells(row: Row) -> tuple[str, str, str, str]:
    return row.operator, row.route, str(row.calls), f"{row.device_time_s * 1e3:.3f} ms"


def _sum_of(rows: tuple[Row, ...], title: str) -> tuple[str, str, str, str]:
    calls, seconds = sum(row.calls for row in rows), sum(row.device_time_s for row in rows)
    return _cells(Row(title, "", calls, seconds))


def report() -> Report:
    """Record which operators run by which route: `with torch_fl.routing.report() as r: ...`.

    Recording costs every operator call some time; outside of reports it costs nothing.
    """
    return Report()
