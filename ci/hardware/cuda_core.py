"""Owns: the core on a machine with an NVIDIA GPU and its own torch: build, unit tests, a first look
at the delegating runtime.

    python ci/hardware/cuda_core.py OUTPUT_FOLDER

Builds and installs the core against the installed torch, under build/; the host backend's own
tests run with the GPU hidden, as on a machine without one. Writes one JSON file per step to
OUTPUT_FOLDER (build.json, unit.json, op_db.json, delegate.json). A step whose file says that it
succeeded is not run again. What this machine's torch is, stands in every file.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "packages/torch-fl-core"
BUILD = ROOT / "build/hardware"
SITE = ROOT / "build/hardware-site"

# Run in a process of its own: activation is once per process, and the default backend is the host.
DELEGATE = """
import sys, importlib, importlib.util, json
import torch
spec = importlib.util.find_spec("torch_fl")
package = importlib.util.module_from_spec(spec)
sys.modules["torch_fl"] = package
from torch_fl.plugins import discovery
from torch_fl.plugins.spec import DelegateRuntime, Detection, Identity, hookimpl
class Plugin:
    @hookimpl
    def torch_fl_identity(self): return Identity("cuda", (1, 0))
    @hookimpl
    def torch_fl_detect(self): return Detection(found=True)
    @hookimpl
    def torch_fl_runtime(self): return DelegateRuntime("cuda")
cuda = discovery.Candidate("cuda", None, None, "here", Plugin)
discovery.discover = lambda: discovery.Discovery((cuda,), (), ())
spec.loader.exec_module(package)
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


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": f"{SITE}:{os.environ.get('PYTHONPATH', '')}",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }


def run(*command: str, timeout: float = 400, **env: str) -> tuple[int, str]:
    """Exit status and the end of the output of a command in the core's folder."""
    try:
        done = subprocess.run(
            command,
            cwd=CORE,
            env=environment() | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        return 124, f"timed out after {timeout} s\n{expired.stdout or ''}"[-40000:]
    return done.returncode, done.stdout[-40000:]


def build() -> tuple[int, str]:
    return run(
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "--upgrade",
        f"--target={SITE}",
        f"--config-settings=build-dir={BUILD}",
        str(CORE),
    )


def unit() -> tuple[int, str]:
    return run(
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        str(ROOT / "pyproject.toml"),
        "--rootdir",
        str(ROOT),
        "-m",
        "not slow",
        "-n",
        "8",
        "-p",
        "no:cacheprovider",
        "tests",
        CUDA_VISIBLE_DEVICES="",
    )


def op_db() -> tuple[int, str]:
    return run(
        sys.executable,
        "-m",
        "torch_fl.testing.op_db",
        "--tier",
        "ci",
        "--workers",
        "8",
        CUDA_VISIBLE_DEVICES="",
    )


def delegate() -> tuple[int, str]:
    status, text = run(sys.executable, "-c", DELEGATE, timeout=200)
    results = [line for line in text.splitlines() if line.startswith("RESULT ")]
    if status == 0 and results:
        checks = json.loads(results[0].removeprefix("RESULT "))
        status = 0 if all(checks.values()) else 1
    return status or (0 if results else 1), text


STEPS: dict[str, Callable[[], tuple[int, str]]] = {
    "build": build,
    "delegate": delegate,
    "op_db": op_db,
    "unit": unit,
}


def main(output: Path) -> int:
    output.mkdir(parents=True, exist_ok=True)
    worst = 0
    for name, step in STEPS.items():
        file = output / f"{name}.json"
        if file.exists() and json.loads(file.read_text())["status"] == 0 and name != "build":
            continue
        start = time.monotonic()
        status, text = step()
        import torch

        record = {
            "step": name,
            "status": status,
            "seconds": round(time.monotonic() - start, 1),
            "date": date.today().isoformat(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
            "output": text,
        }
        file.write_text(json.dumps(record, indent=1))
        print(f"{name}: status {status} after {record['seconds']} s\n{text[-2500:]}", flush=True)
        worst = max(worst, status)
        if name == "build" and status != 0:
            break
    return min(worst, 1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
