"""Owns: accelerate: its own training loop, mixed precision, gather, and saving the state."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import torch
from accelerate import Accelerator, cpu_offload, dispatch_model, init_empty_weights
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from ci.ecosystem.harness import DEVICE, case, compare, main, note


def _accelerator(device: str, **options: Any) -> Any:
    os.environ["ACCELERATE_TORCH_DEVICE"] = device  # how accelerate is told of a device
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()  # it is the process's; here two devices take turns
    made = Accelerator(cpu=device == "cpu", **options)
    assert made.device.type == device, f"accelerate chose {made.device}"
    return made


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3))


def _data() -> Any:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(32, 8, generator=generator)
    return TensorDataset(inputs, torch.randint(0, 3, (32,), generator=generator))


def _train(accelerator: Any) -> tuple[Any, Any, list[torch.Tensor]]:
    note("the device is chosen with ACCELERATE_TORCH_DEVICE=flagos")
    model, loader = _model(), DataLoader(_data(), batch_size=8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    losses = []
    for inputs, labels in loader:
        with accelerator.accumulate(model):
            with accelerator.autocast():
                loss = F.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather_for_metrics(loss.detach().float()))
    return model, optimizer, losses


@case("prepare, train, clip, gather")
def loop() -> None:
    compare(lambda device: _train(_accelerator(device))[2])


@case("mixed precision in bfloat16, gradient accumulation")
def mixed() -> None:
    def run(device: str) -> Any:
        options = {"mixed_precision": "bf16", "gradient_accumulation_steps": 2}
        return _train(_accelerator(device, **options))[2]

    compare(run, 2e-2, 2e-2)


@case(
    "mixed precision in float16 with loss scaling",
    broken="accelerate allows it on the devices of its own list alone; `torch.autocast` and "
    "`torch.amp.GradScaler` themselves work",
)
def half() -> None:
    accelerator = _accelerator(DEVICE, mixed_precision="fp16")
    losses = _train(accelerator)[2]
    assert accelerator.scaler.is_enabled()
    assert all(torch.isfinite(loss).all() for loss in losses)


@case("save_state and load_state")
def state() -> None:
    with tempfile.TemporaryDirectory() as folder:
        accelerator = _accelerator(DEVICE)
        model, _, _ = _train(accelerator)
        accelerator.save_state(folder)
        kept = [parameter.detach().clone() for parameter in model.parameters()]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        accelerator.load_state(folder)
        torch.testing.assert_close([*model.parameters()], kept)
        note(
            "flagos' random state is not in accelerate's list and not saved; see torch_fl.migrate()"
        )


@case("gather, reduce, broadcast, pad across processes")
def collectives() -> None:
    def run(device: str) -> Any:
        accelerator = _accelerator(device)
        x = torch.arange(6.0, device=device).view(2, 3)
        padded = accelerator.pad_across_processes(x, dim=1)
        return [accelerator.gather(x), accelerator.reduce(x, "mean"), padded]

    compare(run)


@case("cpu_offload and dispatch_model")
def offload() -> None:
    def run(device: str) -> Any:
        inputs = _data().tensors[0].to(device)
        offloaded = cpu_offload(_model().eval(), execution_device=torch.device(device))
        plain = {"": torch.device(device, 0) if device != "cpu" else "cpu"}
        dispatched = dispatch_model(_model().eval(), device_map=plain)
        with torch.no_grad():
            return [offloaded(inputs).to(device), dispatched(inputs)]

    compare(run)
    with init_empty_weights():
        assert next(_model().parameters()).is_meta


if __name__ == "__main__":
    main(["accelerate"])
