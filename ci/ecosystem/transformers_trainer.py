"""Owns: transformers' Trainer: trains on flagos as on the CPU, and resumes from its checkpoint."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch.utils.data import Dataset
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from ci.ecosystem.harness import DEVICE, case, compare, main, note

STEPS = 6


class Tokens(Dataset[dict[str, torch.Tensor]]):
    """Sixteen rows of random tokens."""

    def __init__(self) -> None:
        self.rows = torch.randint(3, 67, (16, 12), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class StopAfter(TrainerCallback):
    """Ends the training in its middle, as an interruption would."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        control.should_training_stop = state.global_step >= self.step
        return control


def _trainer(folder: str, device: str, **more: Any) -> Any:
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()  # it is the process's; here two devices take turns
    os.environ["ACCELERATE_TORCH_DEVICE"] = device  # how accelerate is told of a device
    note("the device is chosen with ACCELERATE_TORCH_DEVICE=flagos")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=67,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    options: dict[str, Any] = {
        "max_steps": STEPS,
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 4,
        "save_steps": 3,
        "logging_steps": 1,
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": device == "cpu",
        "seed": 5,
        **more,
    }
    arguments = TrainingArguments(output_dir=folder, **options)
    assert arguments.device.type == device, f"Trainer chose {arguments.device}"
    data = Tokens()
    return Trainer(LlamaForCausalLM(config), arguments, train_dataset=data, eval_dataset=data)


def _losses(trainer: Any) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@case("Trainer: train and evaluate, losses as on the CPU")
def follow() -> None:
    def run(device: str) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            trainer = _trainer(folder, device)
            trainer.train()
            return [*_losses(trainer), trainer.evaluate()["eval_loss"]]

    compare(run, 1e-3, 1e-4)


@case("Trainer: stop, save, resume: losses as without the stop")
def resume() -> None:
    with tempfile.TemporaryDirectory() as folder:
        whole = _trainer(f"{folder}/whole", DEVICE)
        whole.train()
        first = _trainer(f"{folder}/parts", DEVICE)
        first.add_callback(StopAfter(3))
        first.train()
        checkpoint = Path(folder, "parts", "checkpoint-3")
        assert (checkpoint / "optimizer.pt").exists()
        assert list(checkpoint.glob("rng_state*")), "no random states were saved"
        second = _trainer(f"{folder}/parts", DEVICE)
        second.train(resume_from_checkpoint=str(checkpoint))
        torch.testing.assert_close(_losses(second), _losses(whole), rtol=1e-6, atol=1e-6)


@case("Trainer: gradient accumulation and checkpointing")
def accumulate() -> None:
    def run(device: str) -> Any:
        options = {"gradient_accumulation_steps": 2, "gradient_checkpointing": True, "max_steps": 3}
        with tempfile.TemporaryDirectory() as folder:
            trainer = _trainer(folder, device, **options)
            trainer.train()
            return _losses(trainer)

    compare(run, 1e-3, 1e-4)


@case(
    "Trainer: bfloat16",
    broken="transformers allows it on the devices of its own list alone; inside torch_fl.migrate() "
    "it works",
)
def mixed() -> None:
    with tempfile.TemporaryDirectory() as folder:
        _trainer(folder, DEVICE, bf16=True).train()


if __name__ == "__main__":
    main(["transformers", "accelerate"])
