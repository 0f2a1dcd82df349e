"""Owns: the names of `torch_fl.routing`: which implementation runs an operator, and what ran."""

from __future__ import annotations

from torch_fl.routing.report import Report, Row, report

__all__ = ["Report", "Row", "report"]
