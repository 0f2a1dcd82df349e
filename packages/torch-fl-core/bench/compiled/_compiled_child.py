"""Owns: one side of a row of `./dev bench compile`, in a process of its own.

It is the child process of `./dev bench cuda` with compiled workloads, and a cache of the compiler
that is empty when it starts and gone when it ends.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

SHARED = Path(__file__).parents[3] / "torch-fl-cuda" / "bench" / "measured"


def share(builders: int) -> int:
    """The compiler's processes of one of so many that compile at the same time: as many for all."""
    return max(1, (os.cpu_count() or 2) // builders)


def main() -> int:
    """The exit status is 1 after an error, which is also the last answer."""
    sys.path.append(str(SHARED))
    import _child

    with tempfile.TemporaryDirectory(prefix="bench-compile-", ignore_cleanup_errors=True) as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        os.environ["TRITON_CACHE_DIR"] = str(Path(cache) / "triton")
        spec = json.loads(sys.argv[1])
        if not spec["threads"]:
            os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = str(share(spec["builders"]))
        import _workloads

        _workloads.BUILT_IN[spec["workload"]] = "_compiled_workloads:build"
        return int(_child.main())


if __name__ == "__main__":
    sys.exit(main())
