"""Owns: the smoke set at the command line."""

from __future__ import annotations

import argparse
import fnmatch
import sys
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from .execution import GOOD, Result, execute
from .program import Graph, all_graphs
from .results import LEFT_OUT, Results, crashed, read
from .side_by_side import compared_operators, wrong

DEVICE_LOST = 3
"""Exit status: a graph has made the device unusable for this process, others are left."""

_EPILOG = """\
exit status: 0, all do what they do eagerly, or PyTorch itself could not; 1, one does not; 3, the
device was lost to the process with graphs left: the same command goes on in a new one.
"""


def main(arguments: list[str] | None = None) -> int:
    """Runs the graphs that are asked for, or compares what files have of them; the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if bool(options.merge) != bool(options.against):
        parser.error("--merge and --against go together")
    if options.merge:
        return _compare(options.merge, options.against)
    graphs = [graph for graph in all_graphs().values() if _is_chosen(graph, options)]
    if not graphs:
        parser.error(f"no graph is named {options.select!r}, or none of them is in the shard")
    results = Results(options.json)
    for place, graph in enumerate(graphs, start=1):
        _run(graph, options.device, options.backend, results)
        if place < len(graphs) and _is_lost(options.device):
            print(f"the device is lost to this process after {graph.name}", flush=True)
            return DEVICE_LOST
    return _summary([results.done[graph.name] for graph in graphs])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m torch_fl.testing.compiled",
        description="Graphs compiled with torch.compile against the same graphs run eagerly.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--device", default="flagos", help='such as "flagos", "cuda" or "cpu"')
    add("--backend", default="inductor", help="the compiler (default: inductor)")
    add("--select", default="*", metavar="GLOB", help='such as "random/*"')
    add("--shard", type=_shard, default=(1, 1), metavar="I/N", help="the I-th of N parts")
    add("--quick", action="store_true", help="without the slow ones")
    add("--json", type=Path, metavar="FILE", help="adds what came of each; goes on where it ends")
    text = "compare the files of a run on flagos"
    add("--merge", type=Path, nargs="+", metavar="FILE", help=text)
    text = "with those of a run on the device that flagos stands on"
    add("--against", type=Path, nargs="+", metavar="FILE", help=text)
    return parser


def _shard(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if not (index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count)):
        raise argparse.ArgumentTypeError(f"it takes I/N with I from 1 to N, not {text!r}")
    return int(index), int(count)


def _is_chosen(graph: Graph, options: argparse.Namespace) -> bool:
    index, count = options.shard
    # By the name: a graph stays in its part whatever others there are.
    in_shard = zlib.crc32(graph.name.encode()) % count == index - 1
    named = fnmatch.fnmatch(graph.name, options.select)
    return in_shard and named and not (options.quick and graph.slow)


def _run(graph: Graph, device: str, backend: str, results: Results) -> None:
    """Adds to the results what comes of a graph, unless they have it."""
    if results.has(graph.name):
        return
    reason = _missing(graph, device)
    if reason:
        results.add({"name": graph.name, "device": device, "verdict": LEFT_OUT, "notes": [reason]})
        print(f"{LEFT_OUT:9}{graph.name}: {reason}", flush=True)
        return
    if results.ended_the_process(graph.name):
        results.add(crashed(graph.name, device))
        print(f"{'raises':9}{graph.name}: the process ended in it", flush=True)
        return
    results.begin(graph.name)
    try:
        result = execute(graph, device, backend)
    except KeyboardInterrupt:
        results.interrupt(graph.name)
        raise
    results.add(asdict(result))
    print(_line(result), flush=True)


def _missing(graph: Graph, device: str) -> str:
    kind = torch.device(device).type
    if graph.accelerator and kind == "cpu":
        return "it has no meaning on the CPU"
    count = 1 if kind == "cpu" else torch.get_device_module(kind).device_count()
    if graph.devices > count and kind != "cpu":
        return f"it needs {graph.devices} devices, there is {count}"
    return ""


def _is_lost(device: str) -> bool:
    """Whether an assertion, or the like, in a kernel has ended the device's use: from then on every
    call of the process fails."""
    kind = torch.device(device).type
    if kind == "cpu":
        return False
    try:
        torch.get_device_module(kind).synchronize()
    except RuntimeError:
        return True
    return False


def _line(result: Result) -> str:
    said = [*result.notes, f"PyTorch's own limit: {result.limit}"] if result.limit else result.notes
    notes = "".join(f"\n         - {note}" for note in said)
    breaks = f", {result.breaks} breaks" if result.breaks else ""
    return (
        f"{result.verdict:9}{result.name} ({result.seconds:.1f} s, {result.inductor} graphs"
        f"{breaks}){notes}"
    )


def _counts(records: Iterable[Mapping[str, Any]]) -> str:
    verdicts = [record["verdict"] for record in records]
    return ", ".join(f"{verdicts.count(one)} {one}" for one in sorted(set(verdicts)))


def _summary(records: list[dict[str, Any]]) -> int:
    print(_counts(records))
    bad = [record for record in records if record["verdict"] not in (*GOOD, LEFT_OUT)]
    limited = [record for record in bad if record.get("limit")]
    if limited:
        print(f"{len(limited)} of them by PyTorch's own limits")
    return 0 if len(limited) == len(bad) else 1


def _compare(flagos_files: list[Path], native_files: list[Path]) -> int:
    flagos, native = read(flagos_files), read(native_files)
    for where, records in (("on flagos", flagos), ("natively", native)):
        print(f"{len(records)} graphs {where}: {_counts(records.values())}")
    graphs = all_graphs()
    operators = compared_operators(graphs, flagos, native)
    said = [*wrong(graphs, flagos, native), *operators.wrong]
    for line in said:
        print(line)
    if operators.unknown:
        print(f"{len(operators.unknown)} were not compared by operators: a file says none of them")
    known = f", {len(operators.known)} as is known" if operators.known else ""
    print(f"{len(operators.wrong)} have other operators than natively{known}")
    print(f"{len(said)} are not as natively")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
