"""Owns: tests that flagos runs what CUDA would choose: the same kernels, with the same memory.

One process without flagos and one with it do all the work, at the same time; each test compares one
piece of it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import filelock
import pytest
import workloads_of_algebra
import workloads_of_layers
import workloads_of_operators
from workloads_of_kernels import WORK

HERE = Path(__file__).parent
CODE = """
{activate}
sys.path.insert(0, {here!r})
import workloads_of_algebra, workloads_of_layers, workloads_of_operators
import workloads_of_kernels as kernels

if {device!r} == "cuda":
    assert torch._C._get_privateuse1_backend_name() == "privateuseone", "flagos is active"
kernels.main({device!r}, {names!r}, kernels.{find})
"""
MEASURING_S, EXPLAINING_S = 300.0, 90.0

assert workloads_of_algebra
assert workloads_of_layers
assert workloads_of_operators

Child = Callable[..., Any]
Sides = Mapping[str, Mapping[str, Any]]


def _lines(child: Child, device: str, names: list[str], find: str, limit_s: float) -> Any:
    """What a process says of each name, and under "" how it ended, which may be that it did not."""
    activate = "import torch_fl" if device == "flagos" else ""
    code = CODE.format(activate=activate, here=str(HERE), device=device, names=names, find=find)
    try:
        # Deterministic products need this; it is read once per process.
        done = child(code, timeout=limit_s, CUBLAS_WORKSPACE_CONFIG=":4096:8")
        text, end = done.stdout, {"code": done.returncode, "text": done.stderr[-2000:]}
    except subprocess.TimeoutExpired as late:
        text = late.stdout or ""
        text = text.decode(errors="replace") if isinstance(text, bytes) else text
        end = {"code": None, "text": f"it did not end within {limit_s:.0f} s"}
    complete = text.rpartition("\n")[0].splitlines()
    said = [json.loads(line) for line in complete if line.startswith("{")]
    return {"": end} | {line.pop("name"): line for line in said}


def _both(child: Child, names: list[str], find: str, limit_s: float) -> dict[str, Any]:
    with ThreadPoolExecutor(2) as pool:
        runs = {
            device: pool.submit(_lines, child, device, names, find, limit_s)
            for device in ("cuda", "flagos")
        }
        return {device: run.result() for device, run in runs.items()}


def _measured(child: Child) -> dict[str, Any]:
    """Both sides; of what they do not do alike it is found out who had it done."""
    sides = _both(child, list(WORK), "measure", MEASURING_S)
    shared = sides["cuda"].keys() & sides["flagos"].keys() - {""}
    other = [
        name
        for name in sorted(shared)
        if sides["cuda"][name]["kernels"] != sides["flagos"][name]["kernels"]
    ]
    explained = _both(child, other, "explain", EXPLAINING_S) if other else {}
    for device, lines in explained.items():
        for name in lines.keys() & set(other):
            sides[device][name] |= lines[name]
    return sides


@pytest.fixture(scope="module")
def sides(child: Child, tmp_path_factory: pytest.TempPathFactory) -> Sides:
    """`{"cuda": {name: what was measured}, "flagos": ...}`, taken once for all test processes."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return _measured(child)
    kept = tmp_path_factory.getbasetemp().parent / "same_kernels.json"
    with filelock.FileLock(f"{kept}.lock"):
        if not kept.exists():
            kept.write_text(json.dumps(_measured(child)), encoding="utf-8")
    return json.loads(kept.read_text(encoding="utf-8"))


def _of(sides: Sides, name: str) -> tuple[Any, Any]:
    for device, lines in sides.items():
        assert name in lines, f"{device}: the process ended before it: {lines['']}"
    return sides["cuda"][name], sides["flagos"][name]


def _callers(cuda: Any, flagos: Any) -> str:
    """Who had the kernels run that are not as often on both sides."""
    names = {*cuda["kernels"], *flagos["kernels"]}
    other = [n for n in sorted(names) if cuda["kernels"].get(n) != flagos["kernels"].get(n)]
    lines = (
        f"{n}\n  {side}, {said['kernels'].get(n, 0)}: "
        f"{'; '.join(said.get('callers', {}).get(n, [said.get('unexplained', '?')]))}"
        for n in other
        for side, said in (("cuda", cuda), ("flagos", flagos))
    )
    return "\n".join(lines)


PIECES = [name for name, piece in WORK.items() if not piece.refused]
WARM = [name for name in PIECES if not WORK[name].cold]
REFUSED = [name for name, piece in WORK.items() if piece.refused]


@pytest.mark.parametrize("name", PIECES)
def test_the_same_kernels_run(sides: Sides, name: str) -> None:
    cuda, flagos = _of(sides, name)
    assert cuda["error"] is None, "CUDA itself must be able to do the work"
    assert flagos["error"] is None
    assert cuda["kernels"], "nothing was seen to run"
    if WORK[name].cold:  # how often an algorithm is tried depends on time
        assert set(flagos["kernels"]) == set(cuda["kernels"]), _callers(cuda, flagos)
        return
    ours, theirs = dict(flagos["kernels"]), dict(cuda["kernels"])
    for spared in WORK[name].spares:
        assert ours.pop(spared, 0) <= theirs.pop(spared, 0), _callers(cuda, flagos)
    assert ours == theirs, _callers(cuda, flagos)


@pytest.mark.parametrize("name", WARM)
def test_no_more_memory_is_needed(sides: Sides, name: str) -> None:
    """(Less it may be: a library's workspace depends on what a process did before.)"""
    cuda, flagos = _of(sides, name)
    assert 0.9 * cuda["peak"] <= flagos["peak"] <= 1.01 * cuda["peak"] + 1024


@pytest.mark.parametrize("name", REFUSED)
def test_what_cuda_refuses_is_refused_in_its_words(sides: Sides, name: str) -> None:
    cuda, flagos = _of(sides, name)
    assert cuda["error"], "CUDA itself must refuse it"
    assert flagos["error"] == cuda["error"]


def test_both_processes_end_well(sides: Sides) -> None:
    for device, lines in sides.items():
        assert lines[""]["code"] == 0, f"{device}: {lines['']['text']}"


def test_the_comparison_sees_other_choices(sides: Sides) -> None:
    """Work that differs in nothing but a choice gives other kernels."""
    cuda = sides["cuda"]
    for one, other in (
        ("attention flash", "attention math"),
        ("mm float32", "mm float32 tf32"),
        ("SGD default", "SGD {'fused': True}"),
        ("batch_norm float32", "batch_norm float32 eval"),
    ):
        assert cuda[one]["kernels"] != cuda[other]["kernels"], one
