"""Owns: how many samples each tier compares.

The limits are per operator, pass and dtype: the number of cases that stock CPU carries out.
None is no limit.
"""

from __future__ import annotations

from typing import Final

Limits = dict[str, int | None]

TIERS: Final[dict[str, Limits]] = {
    # Must end within 12 minutes of 2 cores. All float32 samples, because they are cheap; of the
    # passes that multiply them (three out= each, forward and gradients) the first few. 77,634
    # cases, 70 s of processor time and 72 s with 2 workers on 2 busy cores, CPU against CPU.
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
    # 228,171 cases, 170 s of processor time, on the same machine.
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
