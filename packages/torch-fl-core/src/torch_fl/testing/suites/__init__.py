"""Owns: the suites, one small file each, by name and in the order in which they run.

``opinfo``, ``gradients`` and ``outs`` hold the cases that several of them make of an OpInfo. A
suite names operators nowhere but in its ``wrong``; what needs special treatment is declared in
``harness.declared``.
"""

from __future__ import annotations

from typing import Final

from ..harness.cases import Suite
from . import (
    compiled,
    deterministic,
    error_inputs,
    foreach_op_db,
    module_db,
    op_db,
    optim_db,
    python_ref_db,
)

SUITES: Final[dict[str, Suite]] = {
    suite.name: suite
    for suite in (
        op_db.SUITE,
        error_inputs.SUITE,
        python_ref_db.SUITE,
        module_db.SUITE,
        optim_db.SUITE,
        foreach_op_db.SUITE,
        deterministic.SUITE,
        compiled.SUITE,
    )
}
