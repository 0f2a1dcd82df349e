"""Owns: training steps of ResNet-50, nn.LSTM and a small MLP, on one batch that stays the same.

Learning rates are small, so that losses stay away from zero and can be compared.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from _resnet import resnet
from _workloads import Workload, trained
from torch import Tensor, nn


def resnet50(device: torch.device, size: dict[str, Any]) -> Workload:
    """Images in channels_last, autocast, GradScaler, SGD with momentum."""
    torch.backends.cudnn.benchmark = True
    dtype = getattr(torch, size["dtype"])
    with device:
        model = resnet(size)
        images = torch.randn(size["batch"], 3, size["image"], size["image"])
        labels = torch.randint(size["classes"], (size["batch"],))
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = images.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5, momentum=0.9)
    scaler = torch.amp.GradScaler(device.type)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype):
            # Autocast has a rule of its own for this loss on CPUs; in float32 there is no choice.
            loss = F.cross_entropy(model(images).float(), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    return trained(step, note=f"{size['dtype']} autocast")


def lstm(device: torch.device, size: dict[str, Any]) -> Workload:
    """Sequences to a target of the hidden state's width, mean squared error."""
    with device:
        model = nn.LSTM(size["inputs"], size["hidden"], size["layers"], batch_first=True)
        inputs = torch.randn(size["batch"], size["length"], size["inputs"])
        target = torch.randn(size["batch"], size["length"], size["hidden"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(model(inputs)[0], target)
        loss.backward()
        optimizer.step()
        return loss

    return trained(step)


def small_mlp(size: dict[str, Any]) -> nn.Sequential:
    """Square layers with ReLU between them, on the current default device."""
    layers: list[nn.Module] = []
    for _ in range(size["layers"]):
        layers += [nn.Linear(size["width"], size["width"]), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def mlp(device: torch.device, size: dict[str, Any]) -> Workload:
    """Kernels so small that the time is what giving them to the device takes."""
    with device:
        model = small_mlp(size)
        inputs = torch.randn(size["batch"], size["width"])
        target = torch.randn(size["batch"], size["width"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(model(inputs), target)
        loss.backward()
        optimizer.step()
        return loss

    return trained(step)
