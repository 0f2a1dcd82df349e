"""Owns: tests of the hooks of compile policies: what they are given, when, and what becomes of it.

Once by a backend of Triton that records what it is given, chosen and bound as makers' are; once by
real compilations for a stock target.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from throwaway import Shelf, install
from triton_children import record, said
from triton_wheels import WHEELS

from torch_fl._compat.compiler import triton_compile
from torch_fl.compile.policies import KernelRefused, Policies
from torch_fl.plugins.spec import Kernel, Resources, TritonTarget

triton = pytest.importorskip("triton", reason="kernels are compiled with Triton: not installed")
programs = pytest.importorskip("triton_programs")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    return install(WHEELS, tmp_path_factory.mktemp("shelf"))


_ACCELERATOR = """
import triton, triton_recorder
from triton_programs import hungry, unwanted, users_own
from torch._inductor.runtime.triton_compat import OutOfResources

function = torch.compile(lambda x, mask: torch.where(mask, torch.tanh(x), x))
x = torch.ones(64, device="flagos")
function(x, x > 0)
told = {"driver": type(triton.runtime.driver.active).__name__,
        "launched": list(triton_recorder.LAUNCHED), "framework": os.environ["ACCEL_FRAMEWORK"]}

users_own[(1,)](torch.ones(8, device="flagos", dtype=torch.int32), 8, BLOCK=8)
told["user"] = triton_recorder.LAUNCHED[-1][0]

try:
    hungry[(1,)](torch.ones(8, device="flagos", dtype=torch.int32))
except OutOfResources as error:
    told["hungry"] = [error.required, error.limit, error.name, str(error.__cause__)]

try:
    unwanted[(1,)](torch.ones(8, device="flagos", dtype=torch.int32))
except Exception as error:
    told["unwanted"] = f"{type(error).__name__}: {error}"
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def accelerator(shelf: Shelf, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("accelerator")
    told = said(shelf, "accel", _ACCELERATOR, folder, "accel-triton")
    return told, record(folder)


def test_hooks_are_called_in_the_cores_order(accelerator: Any) -> None:
    _, entries = accelerator
    once = [entry["hook"] for entry in entries[:3]]
    assert once == ["strategies", "driver_queries", "libdevice"]
    later = [entry["hook"] for entry in entries[3:]]
    assert not set(once) & set(later)
    assert later[:5] == ["options", "options", "signature", "refuse", "compiled"]
    first, second = entries[3:5]
    assert (first["who"], second["who"], second["seen"]) == ("first", "second", True)


def test_a_driver_is_bound_before_it_is_made(accelerator: Any) -> None:
    told, entries = accelerator
    state = ["current_device", "device_count", "is_available", "properties", "raw_stream"]
    assert entries[1]["state"] == [*state, "set_device"]
    # As it was it could not be active (there is no torch_accel), nor say a device.
    assert told["driver"] == "Driver"
    ((kernel, stream),) = told["launched"]
    assert kernel.startswith("triton_poi_fused")
    assert isinstance(stream, int)


def test_strategies_are_registered_and_the_makers_triton_is_told(accelerator: Any) -> None:
    assert accelerator[0]["framework"] == "flagos"


def test_the_compiler_gets_options_types_target_and_libdevice(accelerator: Any) -> None:
    _, entries = accelerator
    made = next(entry for entry in entries if entry["hook"] == "compiled")
    assert made["linearize"] is True
    assert made["stages"] == 7  # the later policy's
    assert made["forced"] == "yes"  # the target's own, over all policies
    assert made["target"] == ["accel", "a100x", 0]
    assert "!tt.ptr<i8>" in made["ttir"]  # a mask, as bytes
    assert "!tt.ptr<i1>" not in made["ttir"]
    assert "1.234500e+04" in made["ttir"]  # the tanh of this libdevice
    refused = next(entry for entry in entries if entry["hook"] == "refuse")
    assert "*i8" in refused["signature"].values()
    assert refused["target"] == ["accel", "a100x", 0]


def test_kernels_that_nobody_generated_pass_the_policies_too(accelerator: Any) -> None:
    told, entries = accelerator
    assert told["user"] == "users_own"
    assert [entry["linearize"] for entry in entries if "users_own" in entry.get("ttir", "")] == [
        True
    ]


def test_a_makers_resource_error_is_tritons(accelerator: Any) -> None:
    told, _ = accelerator
    reason = "accelerator: out of scratch 300 200"
    assert told["hungry"] == [300, 200, "scratch memory", reason]


def test_a_kernel_is_refused_before_it_is_compiled(accelerator: Any) -> None:
    told, entries = accelerator
    assert told["unwanted"] == (
        "KernelRefused: unwanted cannot be compiled for accel:a100x: take another name"
    )
    assert not any("unwanted" in entry.get("ttir", "") for entry in entries)


# Stock compiler, in this process.


_TYPES = {"out": "*fp32", "values": "*fp32", "mask": "*i1", "n": "i32", "BLOCK": "constexpr"}


def _compile(policies: dict[str, Any], *, types: dict[str, str] = _TYPES, **target: Any) -> Any:
    hooks = Policies(TritonTarget("cuda", "nvidia", arch=90, **target), policies, {})
    source = triton.compiler.ASTSource(programs.masked, types, {"BLOCK": 64})
    place = triton.backends.compiler.GPUTarget("cuda", 90, 32)
    through = triton_compile.through(hooks, triton.compile)
    return through(source, target=place, options={"num_warps": 2})


class _Says:
    """A policy with one hook, which returns or raises what it is made with."""

    def __init__(self, hook: str, does: Callable[..., Any]) -> None:
        setattr(self, hook, does)


def test_options_reach_the_stock_compiler() -> None:
    kernel = _compile({"wide": _Says("options", lambda kernel: {"num_warps": 8})})
    assert kernel.metadata.num_warps == 8
    assert ".reqntid 256" in kernel.asm["ptx"]
    forced = _compile(
        {"wide": _Says("options", lambda kernel: {"num_warps": 8})}, options={"num_warps": 4}
    )
    assert forced.metadata.num_warps == 4


def test_types_reach_the_stock_compiler() -> None:
    def bytes_for_masks(kernel: Kernel) -> dict[str, str]:
        assert kernel.constants == {"BLOCK": 64}
        assert (kernel.backend, kernel.arch, kernel.warp_size) == ("cuda", 90, 32)
        return {name: "*i8" for name, kind in kernel.signature.items() if kind == "*i1"}

    kernel = _compile({"masks": _Says("signature", bytes_for_masks)})
    assert "!tt.ptr<i8>" in kernel.asm["ttir"]
    assert "!tt.ptr<i1>" not in kernel.asm["ttir"]
    assert kernel.src.signature["mask"] == "*i8"
    with pytest.raises(RuntimeError, match=r"'masks' rewrites arguments.*does not have: bias"):
        _compile({"masks": _Says("signature", lambda kernel: {"bias": "*i8"})})


def test_errors_of_the_stock_compiler_are_translated() -> None:
    def scratch(kernel: Kernel, error: Exception) -> Resources | None:
        return Resources(5, 4, "registers") if "num_warps" in str(error) else None

    policies = {
        "three": _Says("options", lambda kernel: {"num_warps": 3}),
        "registers": _Says("resources", scratch),
    }
    with pytest.raises(triton.runtime.errors.OutOfResources, match="registers") as raised:
        _compile(policies)
    assert "num_warps" in str(raised.value.__cause__)
    del policies["registers"]
    with pytest.raises(AssertionError, match="num_warps"):
        _compile(policies)


def test_64_bit_operands_are_refused_with_what_to_change() -> None:
    guard = ("torch_fl.compile.wide_kernels:refuse",)
    assert _compile({}, guards=guard).asm["cubin"]
    types = {**_TYPES, "values": "*i64"}
    with pytest.raises(KernelRefused, match=r"values \(\*i64\).*torch\.int32"):
        _compile({}, types=types, guards=guard)
    with pytest.raises(KernelRefused, match=r"out \(\*fp64\).*torch\.float32"):
        _compile({}, types={**_TYPES, "out": "*fp64"}, guards=guard)
