"""Owns: accelerate and transformers' Trainer inside `torch_fl.migrate()`.

They keep lists of the devices they know. Inside a migration they find a CUDA device, which is
flagos, and do what they do for CUDA. The runner sets FLAGOS_MIGRATE=1 for this script: the
migration has to be there before the libraries look around and remember what they saw.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from ci.ecosystem.harness import DEVICE, case, main


def _data() -> Any:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(32, 8, generator=generator)
    return TensorDataset(inputs, torch.randint(0, 3, (32,), generator=generator))


@case("accelerate: chooses the device, trains, saves and restores its random state")
def loop() -> None:
    accelerator = Accelerator()
    assert accelerator.device.type == DEVICE
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 3))
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer, loader = accelerator.prepare(
        model, optimizer, DataLoader(_data(), batch_size=8)
    )
    for inputs, labels in loader:
        accelerator.backward(F.cross_entropy(model(inputs), labels))
        optimizer.step()
        optimizer.zero_grad()
    with tempfile.TemporaryDirectory() as folder:
        accelerator.save_state(folder)
        drawn = torch.rand(4, device="cuda")
        accelerator.load_state(folder)
        assert torch.equal(torch.rand(4, device="cuda"), drawn), "the random state was not restored"


def _trainer(folder: str, **options: Any) -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=67,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        attention_dropout=0.2,
    )
    common: dict[str, Any] = {
        "per_device_train_batch_size": 4,
        "logging_steps": 1,
        "save_steps": 3,
        "max_steps": 6,
        "report_to": [],
        "disable_tqdm": True,
    }
    arguments = TrainingArguments(output_dir=folder, **{**common, **options})
    rows = torch.randint(3, 67, (16, 12), generator=torch.Generator().manual_seed(1))
    data: Any = [{"input_ids": row, "labels": row} for row in rows]
    return Trainer(LlamaForCausalLM(config), arguments, train_dataset=data)


def _losses(trainer: Any) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@case("Trainer: bfloat16")
def mixed() -> None:
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(folder, bf16=True, max_steps=3)
        assert trainer.args.device.type == DEVICE
        trainer.train()
        assert trainer.accelerator.mixed_precision == "bf16"
        assert all(loss == loss for loss in _losses(trainer))


@case("Trainer: resume with dropout, losses as without the stop")
def resume() -> None:
    with tempfile.TemporaryDirectory() as folder:
        whole = _trainer(folder)
        whole.train()
        again = _trainer(folder)
        again.train(resume_from_checkpoint=f"{folder}/checkpoint-3")
        torch.testing.assert_close(_losses(again)[-3:], _losses(whole)[-3:])


if __name__ == "__main__":
    main(["accelerate", "transformers"])
