"""Owns: tests that PyTorch's switches for CUDA change what flagos does, in the same way.

A switch counts as obeyed where the bits of a result, or the kernels that ran, change with it, and
are those that CUDA gives natively.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SIDES = {"cuda": "D = 'cuda'", "flagos": "import torch_fl\nD = 'flagos'"}
TOOLS = f"""
sys.path.insert(0, {str(HERE)!r})
import hashlib
from workloads_of_kernels import kernels, random
kernels(lambda: torch.ones(8, device=D) + 1)  # the first profile starts the tracing

def bits(tensor):
    return hashlib.sha256(tensor.detach().cpu().contiguous().view(torch.uint8).numpy()).hexdigest()

def names(step):
    step()
    return sorted(kernels(step))
"""

Answer = Callable[..., Any]


def _both(said: Answer, code: str, **env: str | None) -> dict[str, Any]:
    sides = {side: said(f"{head}\n{TOOLS}\n{code}", **env) for side, head in SIDES.items()}
    assert sides["flagos"] == sides["cuda"]
    return sides["flagos"]


PRECISION = """
torch.manual_seed(0)
a, b = random(D, 256, 4096, grad=False), random(D, 4096, 256, grad=False)
ha, hb = a.half(), b.half()
matmul = torch.backends.cuda.matmul
said = {}
for value in (False, True):
    matmul.allow_tf32 = value
    said[f"allow_tf32 {value}"] = bits(a @ b)
    torch.backends.cudnn.allow_tf32 = value
    x, w = a.view(16, 64, 32, 32), b.flatten()[: 64 * 64 * 9].view(64, 64, 3, 3)
    said[f"cudnn.allow_tf32 {value}"] = bits(torch.nn.functional.conv2d(x, w))
matmul.allow_tf32 = False
for value in ("highest", "high"):
    torch.set_float32_matmul_precision(value)
    said[f"precision {value}"] = bits(a @ b)
for value in (False, True):
    matmul.allow_fp16_reduced_precision_reduction = value
    said[f"fp16 reduction {value}"] = [bits(ha @ hb), names(lambda: ha @ hb)]
if hasattr(matmul, "allow_fp16_accumulation"):
    for value in (False, True):
        matmul.allow_fp16_accumulation = value
        said[f"fp16 accumulation {value}"] = [bits(ha @ hb), names(lambda: ha @ hb)]
print(json.dumps(said))
"""


def test_precision_of_products(said: Answer) -> None:
    got = _both(said, PRECISION)
    for switch in ("allow_tf32", "cudnn.allow_tf32"):
        assert got[f"{switch} False"] != got[f"{switch} True"], switch
    assert got["precision highest"] == got["allow_tf32 False"]
    assert got["precision high"] == got["allow_tf32 True"]
    if "fp16 accumulation True" in got:
        assert got["fp16 accumulation False"] != got["fp16 accumulation True"]


FP32_PRECISION = """
torch.manual_seed(0)
a, b = random(D, 256, 512, grad=False), random(D, 512, 256, grad=False)
said = {}
for value in ("ieee", "tf32"):
    torch.backends.cuda.matmul.fp32_precision = value
    said[value] = bits(a @ b)
print(json.dumps(said))
"""


def test_fp32_precision(said: Answer) -> None:
    got = _both(said, FP32_PRECISION)
    assert got["ieee"] != got["tf32"]


LIBRARIES = """
torch.manual_seed(0)
a = torch.randn(40, 40)
a = (a @ a.T + 40 * torch.eye(40)).to(D)
batch = a.expand(3, 40, 40).contiguous()
h = random(D, 128, 96, grad=False).half()
said = {"start": [str(torch.backends.cuda.preferred_linalg_library()),
                  str(torch.backends.cuda.preferred_blas_library())]}

def tried(step):
    try:
        return names(step)
    except RuntimeError as error:
        return str(error)

for library in ("default", "cusolver", "magma"):
    try:
        torch.backends.cuda.preferred_linalg_library(library)
    except RuntimeError as error:  # this PyTorch has no MAGMA
        said[library] = str(error)
        continue
    linalg = torch.linalg
    said[library] = [tried(lambda: f(batch)) for f in (linalg.eigh, linalg.inv, linalg.cholesky)]
torch.backends.cuda.preferred_linalg_library("default")
for library in ("cublas", "cublaslt"):
    torch.backends.cuda.preferred_blas_library(library)
    said[library] = [names(lambda: h @ h.T), bits(h @ h.T)]
print(json.dumps(said))
"""


def test_preferred_libraries(said: Answer) -> None:
    assert _both(said, LIBRARIES)["default"][0], "kernels were seen"


CUDNN = """
from torch.nn import functional
from workloads_of_kernels import setting
torch.manual_seed(0)
x, w = random(D, 8, 32, 24, 24, grad=False), random(D, 32, 32, 3, 3, grad=False)
cudnn = torch.backends.cudnn
said = {"off": [], "cold": {}}
with setting(cudnn, "enabled", False):
    said["off"] = names(lambda: functional.conv2d(x, w))
said["on"] = names(lambda: functional.conv2d(x, w))
with setting(cudnn, "deterministic", True):
    said["deterministic"] = names(lambda: functional.conv2d(x, w))
for shape, value in ((20, False), (21, True)):  # shapes that were never seen: nothing is cached
    part = x[:, :, :shape].contiguous()
    with setting(cudnn, "benchmark", value):
        said["cold"][str(value)] = sorted(kernels(lambda: functional.conv2d(part, w)))
print(json.dumps(said))
"""


def test_cudnn_can_be_switched(said: Answer) -> None:
    got = _both(said, CUDNN)
    assert got["off"] != got["on"]
    assert len(got["cold"]["True"]) > len(got["cold"]["False"]), "benchmark mode tries algorithms"


ATTENTION = """
from torch.backends import cuda
from torch.nn.functional import scaled_dot_product_attention as attention
torch.manual_seed(0)
q = random(D, 2, 4, 128, 64, dtype=torch.bfloat16, grad=False)
wide = random(D, 2, 4, 128, 512, dtype=torch.bfloat16, grad=False)
single = q.float()
mask = torch.zeros(128, 128, dtype=torch.bfloat16, device=D)
kinds = ("flash", "mem_efficient", "math", "cudnn")
def only(*on):
    for kind in kinds:
        getattr(cuda, f"enable_{kind}_sdp")(kind in on)
said = {"may": {}, "runs": {}}
may = (cuda.can_use_flash_attention, cuda.can_use_efficient_attention, cuda.can_use_cudnn_attention)
cases = {"bf16": (q, None), "mask": (q, mask), "fp32": (single, None), "wide": (wide, None)}
for label, (x, m) in cases.items():
    params = cuda.SDPAParams(x, x, x, m, 0.0, False, False)
    said["may"][label] = [ask(params) for ask in may]
for kind in kinds:
    only(kind)
    said["runs"][kind] = names(lambda: attention(q, q, q))
    params = cuda.SDPAParams(q, q, q, None, 0.0, False, False)
    said["may"][f"only {kind}"] = [ask(params) for ask in may]
only()
try:
    attention(q, q, q)
except RuntimeError as error:
    said["none"] = str(error)
print(json.dumps(said))
"""


def test_attention_obeys_its_switches(said: Answer) -> None:
    got = _both(said, ATTENTION)
    runs = [tuple(kernels) for kernels in got["runs"].values()]
    assert len(set(runs)) == len(runs), "each switch leaves another implementation"
    assert got["may"]["bf16"][0]
    assert not got["may"]["fp32"][0]
    assert not got["may"]["only math"][0]
    assert got["none"].startswith(("No available kernel", "No viable backend"))


DETERMINISTIC = """
from workloads_of_kernels import deterministic
torch.manual_seed(0)
a, rows = random(D, 64, 64, grad=False), torch.randint(64, (300,)).to(D)
values = random(D, 300, 64, grad=False)
def tried(step):
    try:
        return sorted(kernels(step))
    except RuntimeError as error:
        return str(error)
add = lambda: a.index_add(0, rows, values)
said = {"free": tried(add)}
with deterministic():
    said |= {"bound": tried(add), "mm": tried(lambda: a @ a)}
    said["refused"] = tried(lambda: a.median(0))
    torch.utils.deterministic.fill_uninitialized_memory = True
    said["filled"] = torch.empty(9, device=D).isnan().all().item()
print(json.dumps(said))
"""


@pytest.mark.parametrize("workspace", [None, ":4096:8"])
def test_deterministic_mode(said: Answer, workspace: str | None) -> None:
    got = _both(said, DETERMINISTIC, CUBLAS_WORKSPACE_CONFIG=workspace)
    assert got["free"] != got["bound"]
    assert "does not have a deterministic implementation" in got["refused"]
    assert got["filled"]
    if isinstance(got["mm"], str):  # where PyTorch still asks for it
        assert workspace is None
        assert "CUBLAS_WORKSPACE_CONFIG" in got["mm"]


def test_tuning_is_off_and_can_be_switched_on(said: Answer, tmp_path: Path) -> None:
    code = f"""
        from torch.cuda import tunable
        said = {{"enabled": tunable.is_enabled()}}
        tunable.enable(True)
        tunable.set_filename({str(tmp_path / "tuned.csv")!r})
        tunable.set_max_tuning_iterations(2)
        x = torch.ones(64, 64, device=D, dtype=torch.half)
        x @ x
        said["tuned"] = sorted({{row[0] for row in tunable.get_results()}})
        print(json.dumps(said))
    """
    lines = "\n".join(line.strip() for line in code.splitlines())
    got = _both(said, lines)
    assert got["enabled"] is False
    assert got["tuned"], "products go through the tuner"
