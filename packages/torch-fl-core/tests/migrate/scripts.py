"""Owns: small scripts with "cuda" written into them, as people write them."""

from __future__ import annotations

from pathlib import Path

TRAINING = """
import torch
from torch import nn

assert torch.cuda.is_available()
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
torch.cuda.manual_seed_all(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
inputs = torch.randn(16, 4, device="cuda")
labels = torch.randint(0, 2, (16,)).to(device, non_blocking=True)
first = None
for step in range(20):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    first = first or loss.item()
torch.cuda.synchronize()
assert loss.item() < first
assert inputs.is_cuda and next(model.parameters()).is_cuda
assert torch.cuda.memory_allocated() > 0
torch.save({"model": model.state_dict()}, PATH)
state = torch.load(PATH, map_location="cuda:0")
assert state["model"]["0.weight"].is_cuda
model.load_state_dict(state["model"])
print("trained on", inputs.device.type)
"""

AMP = """
import torch
from torch.cuda.amp import GradScaler, autocast

model = torch.nn.Linear(8, 8).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
old, new = GradScaler(), torch.amp.GradScaler("cuda")
for scaler, context in ((old, autocast()), (new, torch.autocast("cuda", dtype=torch.float16))):
    optimizer.zero_grad(set_to_none=True)
    with context:
        output = model(torch.ones(2, 8).cuda())
        assert output.dtype is torch.float16
        loss = output.float().square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.is_enabled()
assert torch.get_autocast_dtype("cuda") is torch.float16


class Square(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad + torch.zeros(2, device="cuda")


x = torch.ones(2, device="cuda", dtype=torch.float16, requires_grad=True)
with torch.autocast("cuda"):
    y = Square.apply(x)
    assert y.dtype is torch.float32, y.dtype
y.sum().backward()
assert x.grad.is_cuda
print("scaled on", x.device.type)
"""

LOADING = """
import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.arange(12.0).view(6, 2))
stream = torch.cuda.Stream()
start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
total = torch.zeros((), device="cuda")
for workers in (0, 1):
    for (batch,) in DataLoader(data, batch_size=3, pin_memory=True, num_workers=workers):
        assert batch.is_pinned()
        with torch.cuda.stream(stream):
            start.record()
            total += batch.cuda(non_blocking=True).sum()
            end.record()
torch.cuda.current_stream().wait_stream(stream)
end.synchronize()
assert start.elapsed_time(end) >= 0
assert total.item() == 2 * 66
generator = torch.Generator(device="cuda").manual_seed(3)
assert isinstance(generator, torch.Generator)
assert torch.rand(2, device="cuda", generator=generator).is_cuda
print("loaded onto", total.device.type)
"""


def run(source: str, folder: Path) -> None:
    """Runs a script in this process, as the module of somebody's."""
    path = folder / "script.py"
    path.write_text(source, encoding="utf-8")
    names = {"__name__": "somebody", "PATH": str(folder / "checkpoint.pt")}
    exec(compile(source, str(path), "exec"), names)
