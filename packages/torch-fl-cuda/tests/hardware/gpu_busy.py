"""Owns: how long tests keep the GPU busy that look at what waits for it and what does not."""

from __future__ import annotations

CYCLES = 3_000_000_000
"""Of the GPU's clock: a second and a half of an H200. It is long against what a test gives to the
GPU meanwhile, also where other tests share GPU and processors."""

SHORT = CYCLES // 2
"""Where several follow each other."""
