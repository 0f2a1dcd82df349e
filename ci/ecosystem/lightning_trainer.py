"""Owns: Lightning: Trainer and Fabric with accelerator="flagos"."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import lightning as pl
import torch
from lightning.pytorch.accelerators import AcceleratorRegistry
from lightning.pytorch.callbacks import DeviceStatsMonitor, ModelCheckpoint
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from ci.ecosystem.harness import DEVICE, case, compare, main

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
QUIET: dict[str, Any] = {
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "devices": 1,
}


class Net(pl.LightningModule):
    """A small classifier that keeps its losses and the devices it ran on."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        self.losses: list[float] = []
        self.seen: set[str] = set()

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        inputs, labels = batch
        self.seen.add(inputs.device.type)
        loss = F.cross_entropy(self.layers(inputs), labels)
        self.losses.append(loss.detach().float().item())
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        inputs, labels = batch
        self.seen.add(inputs.device.type)
        self.log("loss", F.cross_entropy(self.layers(inputs), labels))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def _loader() -> Any:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(32, 8, generator=generator)
    labels = torch.randint(0, 3, (32,), generator=generator)
    return DataLoader(TensorDataset(inputs, labels), batch_size=8)


def _fit(device: str, folder: str, epochs: int, **options: Any) -> tuple[Net, Any]:
    resume = options.pop("resume", None)
    model = Net()
    trainer = pl.Trainer(
        accelerator=device, max_epochs=epochs, default_root_dir=folder, **{**QUIET, **options}
    )
    trainer.fit(model, _loader(), _loader(), ckpt_path=resume)
    assert model.seen == {device}, f"ran on {model.seen}"
    return model, trainer


@case("Trainer: fit and validate")
def fit() -> None:
    def run(device: str) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            options = {"enable_checkpointing": False, "gradient_clip_val": 1.0}
            model, trainer = _fit(device, folder, 2, **options)
            assert trainer.strategy.root_device.type == device
            validated = trainer.validate(model, _loader(), verbose=False)
            return [*model.losses, validated[0]["loss"]]

    compare(run)


@case("Trainer: checkpoint and resume, losses as without the stop")
def resume() -> None:
    with tempfile.TemporaryDirectory() as folder:
        whole, _ = _fit(DEVICE, folder, 3, enable_checkpointing=False)
        keep = ModelCheckpoint(folder, filename="last")
        first, _ = _fit(DEVICE, folder, 1, callbacks=[keep])
        second, _ = _fit(DEVICE, folder, 3, resume=keep.best_model_path, callbacks=[keep])
        torch.testing.assert_close([*first.losses, *second.losses], whole.losses)
        loaded = Net.load_from_checkpoint(keep.best_model_path, map_location="cpu")
        assert next(loaded.parameters()).device.type == "cpu"


@case("Trainer: bfloat16 mixed precision, float16 with loss scaling")
def mixed() -> None:
    def run(device: str) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            options = {"precision": "bf16-mixed", "enable_checkpointing": False}
            return _fit(device, folder, 1, **options)[0].losses

    compare(run, 2e-2, 2e-2)
    with tempfile.TemporaryDirectory() as folder:
        options = {"precision": "16-mixed", "enable_checkpointing": False}
        model, trainer = _fit(DEVICE, folder, 1, **options)
        assert trainer.precision_plugin.device == DEVICE
        assert trainer.precision_plugin.scaler.is_enabled()
        assert all(loss == loss for loss in model.losses)


@case("Trainer: devices, statistics, wrong devices refused")
def devices() -> None:
    assert DEVICE in AcceleratorRegistry.available_accelerators()
    count = torch.accelerator.device_count()
    assert pl.Trainer(accelerator=DEVICE, **{**QUIET, "devices": [0]}).num_devices == 1
    assert pl.Trainer(accelerator=DEVICE, **{**QUIET, "devices": "auto"}).num_devices == count
    for wrong in (count + 1, [count], "7,"):
        try:
            pl.Trainer(accelerator=DEVICE, **{**QUIET, "devices": wrong})
        except ValueError as error:
            assert "there are" in str(error)  # noqa: PT017
        else:
            raise AssertionError(f"devices={wrong} was accepted")
    with tempfile.TemporaryDirectory() as folder:
        options = {"logger": pl.pytorch.loggers.CSVLogger(folder), "log_every_n_steps": 1}
        _, trainer = _fit(DEVICE, folder, 1, callbacks=[DeviceStatsMonitor()], **options)
        trainer.logger.save()
        assert "allocated" in Path(trainer.logger.log_dir, "metrics.csv").read_text("utf-8")


@case("Fabric: setup, backward, autocast")
def fabric() -> None:
    def run(device: str) -> Any:
        fabric = pl.Fabric(accelerator=device, devices=1)
        model = Net().layers
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        model, optimizer = fabric.setup(model, optimizer)
        losses = []
        for inputs, labels in fabric.setup_dataloaders(_loader()):
            assert inputs.device.type == device
            loss = F.cross_entropy(model(inputs), labels)
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        return losses

    compare(run)
    mixed = pl.Fabric(accelerator=DEVICE, devices=1, precision="bf16-mixed")
    with mixed.autocast():
        ones = torch.ones(2, 2, device=DEVICE)
        assert (ones @ ones).dtype is torch.bfloat16


if __name__ == "__main__":
    main(["lightning"])
