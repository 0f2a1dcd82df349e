"""Owns: tests of what is said where a graph cannot be compiled for a Triton device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from throwaway import Shelf, install
from triton_children import run
from triton_wheels import WHEELS

pytest.importorskip("triton", reason="kernels are compiled with Triton, which is not installed")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    return install(WHEELS, tmp_path_factory.mktemp("shelf"))


_PROMOTED = """
import triton, triton_recorder
triton.runtime.driver.set_active(
    triton_recorder.Recorder(triton.backends.compiler.GPUTarget("cuda", 90, 32)))
told = {}

def refused(name, function, *arguments):
    try:
        torch.compile(function)(*arguments)
    except Exception as error:
        told[name] = str(error)

refused("index", lambda x: x.expand(2**31 + 8, 2).sum(0), torch.ones(1, 2, device="flagos"))
torch._inductor.config.cpp_wrapper = True
refused("wrapper", lambda x: x - 1, torch.ones(4, device="flagos"))
torch._inductor.config.cpp_wrapper = False
refused("operand", lambda i: i + 1, torch.ones(4, dtype=torch.int64, device="flagos"))
torch.compile(lambda x: x + 1, mode="reduce-overhead")(torch.ones(4, device="flagos"))
told["fine"] = len(triton_recorder.LAUNCHED)
print(json.dumps(told))
"""


def test_inductors_64_bit_kernels_are_refused_in_both_forms(shelf: Shelf, tmp_path: Path) -> None:
    child = run(shelf, "wide", _PROMOTED, tmp_path)
    assert child.returncode == 0, child.stderr
    told = json.loads(child.stdout.splitlines()[-1])
    assert "indices are 64 bits wide" in told["index"]
    assert "2**31 elements or more" in told["index"]
    assert "operands are 64 bits wide: in_ptr0 (*i64)" in told["operand"]
    assert told["fine"] == 1
    # Beside it: what such a device does not have.
    assert "has no C++ wrapper for compiled graphs" in told["wrapper"]
    assert "has no CUDA graphs" in child.stderr


_ONE_GRAPH = 'torch.compile(lambda x: x + 1)(torch.ones(4, device="flagos"))'


def test_a_triton_without_the_targets_backend_says_what_to_install(
    shelf: Shelf, tmp_path: Path
) -> None:
    child = run(shelf, "absent", _ONE_GRAPH, tmp_path)
    assert child.returncode
    assert "has no backend 'absent': it has amd, nvidia" in child.stderr
    assert "Install triton-absent of its maker." in child.stderr


def test_no_triton_says_what_to_install(shelf: Shelf, tmp_path: Path) -> None:
    child = run(shelf, "absent", f"sys.modules['triton'] = None\n{_ONE_GRAPH}", tmp_path)
    assert child.returncode
    assert "there is no package 'triton' in this environment" in child.stderr
    assert "Install triton-absent of its maker." in child.stderr


def test_what_fails_when_triton_is_imported_is_raised_by_the_first_kernel(
    shelf: Shelf, tmp_path: Path
) -> None:
    code = (
        "import accel_triton.registry as there\n"
        "there.registry.strategies['theirs']['header_file'] = list\n"
        "import triton\n"  # works: others need it too
        f"{_ONE_GRAPH}"
    )
    child = run(shelf, "accel", code, tmp_path, "accel-triton")
    assert child.returncode
    assert "does not cover the strategies that 'theirs' has" in child.stderr
    assert "header_file (1 of 2). This Triton is newer than the plugin" in child.stderr
