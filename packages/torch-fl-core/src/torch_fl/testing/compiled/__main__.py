"""Owns: the smoke set at the command line."""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from .execution import GOOD, Result, execute
from .program import Graph, all_graphs


def main(arguments: list[str] | None = None) -> int:
    """Runs the graphs that are asked for; 1 where one does not do what it does eagerly, and PyTorch
    itself could."""
    parser = argparse.ArgumentParser(
        prog="python -m torch_fl.testing.compiled",
        description="Graphs compiled with torch.compile against the same graphs run eagerly.",
    )
    parser.add_argument("--device", default="flagos", help='such as "flagos", "cuda" or "cpu"')
    parser.add_argument("--backend", default="inductor", help="the compiler (default: inductor)")
    parser.add_argument("--select", default="*", metavar="GLOB", help='such as "random/*"')
    parser.add_argument("--quick", action="store_true", help="without the slow ones")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="adds a line for each graph; goes on where it ends",
    )
    options = parser.parse_args(arguments)
    graphs = [
        graph
        for graph in all_graphs().values()
        if fnmatch.fnmatch(graph.name, options.select) and not (options.quick and graph.slow)
    ]
    if not graphs:
        parser.error(f"no graph is named {options.select!r}")
    done = _read(options.json)
    for graph in graphs:
        reason = _missing(graph, options.device)
        if reason:
            print(f"{'left out':9}{graph.name}: {reason}", flush=True)
        elif graph.name not in done:
            _write(options.json, {"name": graph.name, "started": True})
            result = execute(graph, options.device, options.backend)
            done[graph.name] = asdict(result)
            _write(options.json, done[graph.name])
            print(_line(result), flush=True)
    names = {graph.name for graph in graphs}
    return _summary([found for name, found in done.items() if name in names])


def _missing(graph: Graph, device: str) -> str:
    kind = torch.device(device).type
    if graph.accelerator and kind == "cpu":
        return "it has no meaning on the CPU"
    count = 1 if kind == "cpu" else torch.get_device_module(kind).device_count()
    if graph.devices > count and kind != "cpu":
        return f"it needs {graph.devices} devices, there is {count}"
    return ""


def _read(path: Path | None) -> dict[str, dict[str, Any]]:
    """What a file has already. A graph that began and did not end took the process with it."""
    done: dict[str, dict[str, Any]] = {}
    if path is None or not path.exists():
        return done
    for text in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(text)
        if record.pop("started", False):
            record.update(verdict="raises", notes=["the process ended in it"])
        done[record["name"]] = record
    return done


def _write(path: Path | None, record: dict[str, Any]) -> None:
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def _line(result: Result) -> str:
    said = [*result.notes, f"PyTorch's own limit: {result.limit}"] if result.limit else result.notes
    notes = "".join(f"\n         - {note}" for note in said)
    breaks = f", {result.breaks} breaks" if result.breaks else ""
    return (
        f"{result.verdict:9}{result.name} ({result.seconds:.1f} s, {result.inductor} graphs"
        f"{breaks}){notes}"
    )


def _summary(records: list[dict[str, Any]]) -> int:
    verdicts = [record["verdict"] for record in records]
    print(", ".join(f"{verdicts.count(one)} {one}" for one in sorted(set(verdicts))))
    bad = [record for record in records if record["verdict"] not in GOOD]
    limited = [record for record in bad if record.get("limit")]
    if limited:
        print(f"{len(limited)} of them by PyTorch's own limits")
    return 0 if len(limited) == len(bad) else 1


if __name__ == "__main__":
    sys.exit(main())
