"""Owns: everything that is shown on an NVIDIA GPU, in an order that fits into short loans of one.

    python ci/hardware/cuda_all.py OUTPUT_FOLDER PART [...] [--seconds N] [--wheel F] [--pack F]

A part is about one visit: `checks` (tests, kernels, programs, the compiler's graphs), `databases`
(PyTorch's own), `operators` (its operators compiled), `figures` and `compiled-figures` (the
benchmarks), `core` (the core without the plugin); the name of a step is that step alone, names
joined by "+" are steps side by side. Each visit builds and installs first; with `--wheel`, a core
built on such a machine before is installed instead. Steps that do not disturb each other run side
by side; figures are taken alone. What an earlier visit finished is passed by, and what it began
goes on, if its OUTPUT_FOLDER is given again. A built core is left there. `--pack` names a file that
is to have all of the folder, whatever happens.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import cuda_compile
import cuda_core
import cuda_plugin
import installation
import results_folder
from steps import Step, Visit, perform, perform_group

STEPS = {step.name: step for part in (cuda_core, cuda_plugin, cuda_compile) for step in part.STEPS}
WITHOUT_PLUGIN = {step.name for step in cuda_core.STEPS}

PARTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "checks": (
        ("tests", "kernels", "programs", "smoke-flagos", "smoke-cuda", "lists", "native-lists"),
        ("graphs", "lists-compared"),
    ),
    "databases": (("flagos", *cuda_plugin.NATIVE_RUNS), ("compared",)),
    "figures": (("bench",),),
    "compiled-figures": (("bench-compile",),),
    "operators": (("operators-flagos", "operators-cuda"), ("operators-compared",)),
    "core": (("unit", "op_db"), ("delegate",), ("flaggems",)),
}
"""Groups one after the other; the steps of a group side by side."""


def groups_of(part: str) -> tuple[tuple[str, ...], ...]:
    """What a word of the command line stands for."""
    groups = PARTS.get(part, (tuple(part.split("+")),))
    if unknown := {name for group in groups for name in group} - STEPS.keys():
        known = ", ".join([*PARTS, *STEPS])
        raise argparse.ArgumentTypeError(f"{' '.join(sorted(unknown))} is none of {known}")
    return groups


def carry_out(
    visit: Visit,
    install: Step,
    groups: Sequence[Sequence[Step]],
    keep: Callable[[], None] = lambda: None,
) -> int:
    """0 where every step has succeeded, in this visit or before. `keep` is called after each group:
    whoever lent the machine may end the visit."""
    if not perform(visit, install).good:
        return 1
    aside = results_folder.put_aside(visit.output, visit.facts["build"])
    if aside is not None:
        print(f"the results of another build are in {aside}", flush=True)
    outcomes = []
    for group in groups:
        outcomes += perform_group(visit, group)
        keep()
    failed = [outcome.name for outcome in outcomes if not outcome.good]
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} steps have succeeded", *failed)
    return int(bool(failed))


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    began = time.monotonic()
    program = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    program.add_argument("output", type=Path)
    program.add_argument("what", nargs="+", type=groups_of, metavar="PART")
    program.add_argument("--seconds", type=float, default=560, help="of this visit (560)")
    program.add_argument("--wheel", type=Path, help="a core that was built here before")
    program.add_argument("--pack", type=Path, metavar="FILE", help="a .tar.gz of the folder")
    options = program.parse_args(arguments)
    if options.wheel is not None and not options.wheel.is_file():
        program.error(f"there is no wheel {options.wheel}")
    wheel = None if options.wheel is None else options.wheel.resolve(strict=True)

    output = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    visit = Visit(output, began + options.seconds)
    groups = [group for part in options.what for group in part]
    plugin = any(name not in WITHOUT_PLUGIN for group in groups for name in group)
    act = partial(installation.install, wheel=wheel, plugin=plugin)
    install = Step("install", act, each_visit=True)

    def keep() -> None:
        if options.pack is None:
            return
        try:
            results_folder.pack(output, options.pack.resolve(), visit.began)
        except OSError as error:  # the steps go on: their results are in the folder
            print(f"{options.pack} cannot be written: {error}", flush=True)

    try:
        chosen = [[STEPS[name] for name in group] for group in groups]
        return carry_out(visit, install, chosen, keep)
    finally:
        keep()


if __name__ == "__main__":
    sys.exit(main())
