"""Owns: peft: LoRA trains, is saved, loaded and merged."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from ci.ecosystem.harness import DEVICE, case, compare, main, train

IDS = torch.randint(3, 67, (2, 9), generator=torch.Generator().manual_seed(1))


def _base() -> Any:
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
    return LlamaForCausalLM(config)


def _lora(device: str, **options: Any) -> Any:
    settings = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], **options}
    return get_peft_model(_base().to(device), LoraConfig(**settings))


def _trained(device: str, **options: Any) -> tuple[Any, list[Any]]:
    model, ids = _lora(device, **options), IDS.to(device)
    return model, train(model, lambda: model(input_ids=ids, labels=ids).loss, steps=3)


@case("LoRA: train, only the adapter's weights")
def learn() -> None:
    compare(lambda device: _trained(device)[1], 1e-3, 1e-4)
    model, _ = _trained(DEVICE)
    assert all(
        ("lora_" in name) == parameter.requires_grad for name, parameter in model.named_parameters()
    )


@case("LoRA with dropout, rank-stabilised; DoRA")
def variants() -> None:
    for options in ({"lora_dropout": 0.2, "use_rslora": True}, {"use_dora": True}):
        compare(lambda device, options=options: _trained(device, **options)[1], 1e-3, 1e-4)


@case("LoRA: merge and unload, logits unchanged")
def merge() -> None:
    model, _ = _trained(DEVICE)
    model.eval()
    with torch.no_grad():
        before = model(IDS.to(DEVICE)).logits
        after = model.merge_and_unload()(IDS.to(DEVICE)).logits
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)


@case("LoRA: save and load, on flagos and on the CPU")
def keep() -> None:
    model, _ = _trained(DEVICE)
    model.eval()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model.save_pretrained(folder)
        expected = model(IDS.to(DEVICE)).logits
        for device in (DEVICE, "cpu"):
            loaded = PeftModel.from_pretrained(_base().to(device), folder).eval()
            found = loaded(IDS.to(device)).logits
            assert found.device.type == device
            torch.testing.assert_close(found.cpu(), expected.cpu(), rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    main(["peft", "transformers"])
