"""Owns: tests that what is generated for a Triton device computes what eager flagos does."""

from __future__ import annotations

from typing import Any

import pytest
from throwaway import install
from triton_children import said
from triton_wheels import WHEELS

pytest.importorskip("triton", reason="kernels are compiled with Triton, which is not installed")

_CODE = """
import copy
import triton, triton_interpreter, triton_recorder
from torch import nn
from torch.nn import functional
from torch._inductor.runtime.benchmarking import benchmarker

triton.runtime.driver.set_active(
    triton_interpreter.Interpreter(triton.backends.compiler.GPUTarget("cuda", 90, 32)))
torch._inductor.config.triton.autotune_pointwise = False
def once(self, function, device_type=None, **kwargs):
    function()
    return 1.0
type(benchmarker).benchmark_gpu = once

torch.manual_seed(0)
x = torch.randn(8, 96, device="flagos")
found = {}

def compare(name, function, *arguments, learns=False):
    torch._dynamo.reset()
    triton_recorder.LAUNCHED.clear()
    other, others = copy.deepcopy((function, arguments)) if learns else (function, arguments)
    expected = function(*arguments)
    got = torch.compile(other)(*others)
    pairs = [(expected, got)]
    if learns:
        expected.backward()
        got.backward()
        pairs += [(a.grad, b.grad) for a, b in zip(function.parameters(), other.parameters())]
    worst = max(float((a - b).abs().max()) for a, b in pairs)
    found[name] = {"worst": worst, "launched": len(triton_recorder.LAUNCHED),
                   "devices": sorted({str(b.device) for _, b in pairs})}

def changes(x):
    y = x.clone()
    y[:, ::2].add_(1)
    return y.t() * 2

class Learns(nn.Sequential):
    def forward(self, x):
        return super().forward(x).square().mean()

compare("pointwise", lambda x: torch.where(x > 0, x.tanh(), x.exp()), x)
compare("reductions", lambda x: x.amax(0) + x.sum(0), x)
compare("softmax", lambda x: torch.softmax(x, -1), x)
compare("norm", lambda x: functional.layer_norm(x, (96,)), x)
compare("indexing", lambda x, i: x[:, i] + functional.embedding(i, x.t())[:, :1].t(), x,
        torch.tensor([1, 3, 3, 90], device="flagos"))
compare("views", changes, x)
compare("long", lambda x: (x * x).sum(1), torch.randn(3, 5000, device="flagos"))
model = Learns(nn.Linear(96, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)).to("flagos")
compare("training", model, x, learns=True)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    shelf = install(WHEELS, tmp_path_factory.mktemp("shelf"))
    return said(shelf, "hopper", _CODE, tmp_path_factory.mktemp("hopper"))


@pytest.mark.parametrize(
    "graph",
    ["pointwise", "reductions", "softmax", "norm", "indexing", "views", "long", "training"],
)
def test_kernels_compute_what_eager_does(found: Any, graph: str) -> None:
    entry = found[graph]
    assert entry["launched"] > 0
    assert entry["devices"] == ["flagos:0"]
    assert entry["worst"] < (1e-2 if graph == "long" else 1e-5)
