"""Owns: the programs with which the core is looked at on a GPU without the plugin: the delegating
runtime, and FlagGems' kernels as routes. Each prints RESULT and which of its checks held.
"""

from __future__ import annotations

# Run in processes of their own: activation is once per process, and the default is the host.
ON_CUDA = """
import sys, importlib, importlib.util, json
import torch
spec = importlib.util.find_spec("torch_fl")
package = importlib.util.module_from_spec(spec)
sys.modules["torch_fl"] = package
from torch_fl.plugins import discovery
from torch_fl.plugins.spec import DelegateRuntime, Detection, Identity, TritonTarget, hookimpl
class Plugin:
    @hookimpl
    def torch_fl_identity(self): return Identity("cuda", (1, 0))
    @hookimpl
    def torch_fl_detect(self): return Detection(found=True)
    @hookimpl
    def torch_fl_runtime(self): return DelegateRuntime("cuda")
    @hookimpl
    def torch_fl_triton_target(self): return TritonTarget("cuda", cuda_like=True)
cuda = discovery.Candidate("cuda", None, None, "here", Plugin)
discovery.discover = lambda: discovery.Discovery((cuda,), (), ())
spec.loader.exec_module(package)
"""

DELEGATE = (
    ON_CUDA
    + """
import torch.nn.functional as F
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
checks = {}
x = torch.randn(64, 64)
a = x.to("flagos")
checks["device"] = str(a.device)
checks["mm"] = torch.allclose((a @ a).cpu(), (x.cuda() @ x.cuda()).cpu())
torch.manual_seed(3)
f = torch.randn(100, device="flagos").cpu()
torch.manual_seed(3)
checks["random_bitwise"] = torch.equal(f, torch.randn(100, device="cuda").cpu())
checks["one_pool"] = torch.accelerator.memory_allocated() == torch.cuda.memory_allocated()
stream = torch.Stream(device="flagos")
with stream:
    checks["one_current_stream"] = torch.cuda.current_stream().stream_id == stream.stream_id
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
    torch.nn.Linear(8 * 36, 10)).to("flagos")
optimizer = torch.optim.AdamW(model.parameters())
inputs = torch.randn(32, 1, 8, 8, device="flagos")
labels = torch.randint(0, 10, (32,), device="flagos")
losses = []
for _ in range(30):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
checks["training_learns"] = losses[-1] < losses[0] / 2
lstm = torch.nn.LSTM(4, 8).to("flagos")
lstm(torch.randn(3, 2, 4, device="flagos"))[0].sum().backward()
checks["lstm_backward"] = lstm.weight_ih_l0.grad is not None
try:
    torch.ones(2, device="cuda", requires_grad=True).sum().backward()
    checks["cuda_backward_refused"] = False
except RuntimeError as error:
    checks["cuda_backward_refused"] = "import torch_fl" in str(error)
for name, call in {
    "error_names_flagos": lambda: a @ torch.ones(3, 3, device="flagos"),
    "mixed_refused": lambda: a + torch.ones(64, 64),
}.items():
    try:
        call()
        checks[name] = False
    except RuntimeError as error:
        checks[name] = "cuda" not in str(error).lower().split("cuda kernel errors")[0]
print("RESULT " + json.dumps(checks))
"""
)


FLAGGEMS = (
    ON_CUDA
    + """
import time
from torch import nn
import torch.nn.functional as F
from torch_fl import routing
torch.backends.cuda.matmul.allow_tf32 = False

def floats(*shape): return torch.randn(*shape, generator=torch.Generator().manual_seed(1))
x, y, cube = floats(64, 48), floats(48, 32), floats(4, 16, 8)
calls = {
    "mm": (lambda a, b: a @ b, x, y),
    "addmm": (lambda a, b: torch.addmm(b[0], a, b), x, y),
    "bmm": (lambda a: torch.bmm(a, a.transpose(1, 2)), cube),
    "add.Tensor": (lambda a: a + a, x),
    "add_.Tensor": (lambda a: a.clone().add_(a), x),
    "mul.Tensor": (lambda a: a * a, x),
    "relu": (torch.relu, x),
    "gelu": (F.gelu, x),
    "silu": (F.silu, x),
    "exp": (torch.exp, x),
    "_softmax": (lambda a: a.softmax(-1), x),
    "_log_softmax": (lambda a: a.log_softmax(-1), x),
    "native_layer_norm": (lambda a: F.layer_norm(a, (48,)), x),
    "sum.dim_IntList": (lambda a: a.sum(1), x),
    "mean.dim": (lambda a: a.mean(1), x),
    "amax": (lambda a: a.amax(1), x),
    "where.self": (lambda a: torch.where(a > 0, a, -a), x),
    "cat": (lambda a: torch.cat([a, a]), x),
    "index_select": (lambda a: a.index_select(0, torch.arange(3, device=a.device)), x),
    "cumsum": (lambda a: a.cumsum(0), x),
    "topk": (lambda a: a.topk(5, 1).values, x),
    "sort": (lambda a: a.sort(1).values, x),
    "embedding": (lambda w: F.embedding(torch.arange(9, device=w.device), w), x),
}
rows = {}
for name, (call, *inputs) in calls.items():
    begin = time.monotonic()
    row = rows[name] = {}
    try:
        expected = call(*(a.cuda() for a in inputs)).cpu()
        with routing.use({name: "flaggems"}), routing.report() as report:
            result = call(*(a.to("flagos") for a in inputs))
        row["route"] = sorted({r.route for r in report.rows if name in r.operator})
        row["device"] = str(result.device)
        row["error"] = (result.cpu() - expected).abs().max().item()
        row["ok"] = (row["error"] < 1e-3 and "flaggems" in row["route"]
                     and row["device"] == "flagos:0")
    except Exception as error:
        row["ok"], row["said"] = False, f"{type(error).__name__}: {error}"[:600]
    row["s"] = round(time.monotonic() - begin, 2)

def train():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.LayerNorm(96), nn.Linear(96, 10))
    model.to("flagos")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, foreach=False)
    inputs, labels = floats(128, 64).to("flagos"), (torch.arange(128) % 10).to("flagos")
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses

begin = time.monotonic()
boxed = train()
training = {"boxing": boxed[-1]}
try:
    # (Matrix products are shown above. FlagGems tunes them for minutes for each shape.)
    routing.set({"default": "flaggems, boxing", "mm": "boxing", "addmm": "boxing"})
    with routing.report() as report:
        losses = train()
    training |= {
        "flaggems": losses[-1],
        "operators": sorted({r.operator for r in report.rows if r.route == "flaggems"}),
        "boxed_operators": sorted({r.operator for r in report.rows if r.route == "boxing"}),
        "ok": abs(losses[0] - boxed[0]) < 1e-3 and abs(losses[-1] - boxed[-1]) < 0.05,
    }
except Exception as error:
    training |= {"ok": False, "said": f"{type(error).__name__}: {error}"[:1500]}
rows["training"] = training | {"s": round(time.monotonic() - begin, 2)}
import flag_gems, triton
print("flag_gems", flag_gems.__version__, "triton", triton.__version__)
for name, row in rows.items():
    print(name, json.dumps(row))
print("RESULT " + json.dumps({name: row["ok"] for name, row in rows.items()}))
"""
)
