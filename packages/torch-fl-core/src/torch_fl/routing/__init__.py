"""Owns: the names of `torch_fl.routing`: which implementation runs an operator, and what ran.

docs/routing.md is the guide.
"""

from __future__ import annotations

from torch_fl.routing.engine import refresh, register, reset, set, use
from torch_fl.routing.errors import RouteError
from torch_fl.routing.explain import Alternative, Explanation, Explanations, explain
from torch_fl.routing.kernels import Kernel
from torch_fl.routing.report import Fallback, Report, Row, fallbacks, report

__all__ = [
    "Alternative",
    "Explanation",
    "Explanations",
    "Fallback",
    "Kernel",
    "Report",
    "RouteError",
    "Row",
    "explain",
    "fallbacks",
    "refresh",
    "register",
    "report",
    "reset",
    "set",
    "use",
]
