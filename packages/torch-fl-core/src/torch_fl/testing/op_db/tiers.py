"""Owns: how many samples each tier compares.

The limits are per operator, pass and dtype: the number of cases that stock CPU carries out.
None is no limit.
"""

from __future__ import annotations

from typing import Final

Limits = dict[str, int | None]

TIERS: Final[dict[str, Limits]] = {
    # Within 12 minutes of 2 cores, with room for slower machines.
    "ci": {
        "forward": None,
        "grad": 30,
        "bfloat16": 30,
        "int64": 30,
        "bool": 30,
        "complex64": 30,
        "grad64": 10,
        "out": 12,
        "inplace": None,
        "noncontiguous": 12,
    },
    "full": dict.fromkeys(
        (
            "forward",
            "grad",
            "bfloat16",
            "int64",
            "bool",
            "complex64",
            "grad64",
            "out",
            "inplace",
            "noncontiguous",
        )
    ),
    # Enough to see a wrong add; a few minutes.
    "selfcheck": {"forward": 3, "grad": 3},
}
