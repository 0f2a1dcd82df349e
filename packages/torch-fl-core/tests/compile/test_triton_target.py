"""Owns: tests that flagos is a Triton device of Inductor like any other, down to machine code.

No device is needed: kernels are generated and compiled for an NVIDIA target, and launched on a
driver that only records.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from releases import not_in_old
from throwaway import Shelf, install
from triton_children import said
from triton_wheels import WHEELS

pytest.importorskip("triton", reason="kernels are compiled with Triton, which is not installed")

_CODE = """
import time, triton, triton_recorder
from torch._inductor.utils import run_and_get_code
from torch_fl.compile import target
recorder = triton_recorder.Recorder(triton.backends.compiler.GPUTarget("cuda", 90, 32))
triton.runtime.driver.set_active(recorder)

compiled = {}
compile = triton.compile
def keep(src, *args, **kwargs):
    kernel = compile(src, *args, **kwargs)
    compiled.setdefault(kernel.metadata.name, kernel.asm)
    return kernel
triton.compile = keep

torch._inductor.config.triton.autotune_pointwise = False

from torch._inductor.runtime.benchmarking import benchmarker
measured = []
def measure(self, function, *args, device_type=None, **kwargs):
    function()
    measured.append(device_type)
    return float(len(measured))
type(benchmarker).benchmark_gpu = measure

found = {"road": target.is_triton_device()}
for name, (function, arguments, settings) in triton_recorder.graphs().items():
    torch._dynamo.reset()
    compiled.clear()
    triton_recorder.LAUNCHED.clear()
    start = time.monotonic()
    learns = name == "training"
    dynamic = True if name == "dynamic" else None
    with torch.no_grad() if not learns else torch.enable_grad():
        function_compiled = torch.compile(
            function, options=settings or None, fullgraph=True, dynamic=dynamic)
        def run():
            result = function_compiled(*arguments)
            if learns:
                result.backward()
            return result
        result, code = run_and_get_code(run)
    if learns:
        code += [str(next(function.__closure__[0].cell_contents.parameters()).grad.device)]
    found[name] = {
        "code": code, "device": str(result.device),
        "launched": [kernel for kernel, _ in triton_recorder.LAUNCHED],
        "asm": {kernel: sorted(asm) for kernel, asm in compiled.items()},
        "seconds": round(time.monotonic() - start, 1),
        "targets": sorted({line for asm in compiled.values() for line in asm["ptx"].splitlines()
                           if line.startswith(".target")}),
    }
found["measured"] = sorted(set(measured))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    return install(WHEELS, tmp_path_factory.mktemp("shelf"))


@pytest.fixture(scope="module")
def found(shelf: Shelf, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return said(shelf, "hopper", _CODE, tmp_path_factory.mktemp("hopper"))


KINDS = ("pointwise", "reduction", "softmax", "norm", "dropout", "training", "matmul", "attention")


@pytest.mark.parametrize("kind", [*KINDS, "dynamic"])
def test_kernels_reach_machine_code_and_are_launched(found: Any, kind: str) -> None:
    assert found["road"] is True
    entry = found[kind]
    assert entry["device"] == "flagos:0"
    assert entry["launched"]
    assert set(entry["launched"]) <= set(entry["asm"])
    assert all("cubin" in stages for stages in entry["asm"].values())
    assert entry["targets"] == [".target sm_90a"]


@pytest.mark.parametrize("kind", KINDS)
def test_state_is_flagos_and_hardware_is_the_targets(found: Any, kind: str) -> None:
    code = "\n".join(found[kind]["code"])
    properties = re.findall(r"DeviceProperties\([^)]*\)", code)
    assert properties
    for said_of_device in properties:
        assert "type='cuda', index=0, multi_processor_count=132, cc=90, major=9" in said_of_device
        assert "regs_per_multiprocessor=65536" in said_of_device
        assert "warp_size=32" in said_of_device
    assert "with torch.flagos.device(0)" in code
    assert "from torch_fl.compile.triton_device import raw_stream as get_raw_stream" in code
    assert "torch.cuda." not in code
    assert not re.search(r"device='cuda|empty_strided_cuda\(", code)


def test_each_kind_of_code_is_what_a_gpu_gets(found: Any) -> None:
    kinds = {kind: " ".join(found[kind]["launched"]) for kind in KINDS}
    assert kinds["pointwise"] == "triton_poi_fused_add_mul_relu_0"
    assert kinds["reduction"].startswith("triton_per_fused_sum")
    assert "prepare_softmax_online" in kinds["softmax"]  # in one pass
    assert kinds["norm"].startswith("triton_per_fused_native_layer_norm")
    assert "tl.rand(" in found["dropout"]["code"][0]
    assert "triton_tem_fused_mm_relu" in kinds["matmul"]  # GEMM and epilogue in one kernel
    assert "triton_tem_fused" in kinds["attention"]
    assert "flex_attention" in kinds["attention"]


def test_training_compiles_forward_and_backward(found: Any) -> None:
    forward, backward, gradient = found["training"]["code"]
    assert "gelu" in forward
    assert "gelu" in backward
    assert gradient == "flagos:0"


def test_a_graph_may_leave_the_device(found: Any) -> None:
    assert found["mixed"]["device"] == "cpu"
    (kernel,) = found["mixed"]["launched"]
    assert "add" in kernel


@not_in_old("the measuring function is not told the device")
def test_configurations_are_measured_on_the_device(found: Any) -> None:
    assert found["measured"] == ["flagos"]


_WORKERS = """
import time, triton, triton_recorder
triton.runtime.driver.set_active(
    triton_recorder.Recorder(triton.backends.compiler.GPUTarget("cuda", 90, 32)))
from torch._inductor.async_compile import AsyncCompile
torch._inductor.config.compile_threads = 2
AsyncCompile.warm_pool()
end = time.monotonic() + 60
while not AsyncCompile.use_process_pool() and time.monotonic() < end:
    time.sleep(0.1)
assert AsyncCompile.use_process_pool()
torch.compile(lambda x: x.sin() + 1)(torch.ones(64, device="flagos"))
print(json.dumps([os.getpid(), triton_recorder.LAUNCHED[0][0]]))
"""


def test_policies_are_in_force_in_compiling_processes(shelf: Shelf, tmp_path: Path) -> None:
    process, kernel = said(
        shelf, "workers", _WORKERS, tmp_path, FLAGOS_AUTOLOAD="0", TORCH_WARM_POOL="0"
    )
    told = [line.split() for line in (tmp_path / "record").read_text().splitlines()]
    assert {name for _, name in told} == {kernel}
    assert str(process) not in {where for where, _ in told}
