"""Owns: transformers: six models train, and those that write text write the same text."""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    ViTConfig,
    ViTForImageClassification,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from ci.ecosystem.harness import case, compare, main, train

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
TEXT = {"vocab_size": 67, "max_position_embeddings": 64}
IDS = torch.randint(3, 67, (2, 9), generator=torch.Generator().manual_seed(1))
MASK = torch.ones_like(IDS)
MASK[1, :3] = 0  # padded on the left
IDS[1, :3] = 0


def _decoder(kind: str) -> Any:
    torch.manual_seed(0)
    common = {**SMALL, **TEXT, "num_key_value_heads": 2, "pad_token_id": 0, "eos_token_id": 2}
    if kind == "Qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**common, head_dim=8))
    if kind == "Mixtral":
        return MixtralForCausalLM(
            MixtralConfig(**common, num_local_experts=4, num_experts_per_tok=2)
        )
    return LlamaForCausalLM(LlamaConfig(**common))


def _whisper() -> Any:
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=67,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=16,
        max_source_positions=30,
        max_target_positions=40,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=[],
        begin_suppress_tokens=[],
    )
    return WhisperForConditionalGeneration(config)


def _generate(model: Any, options: dict[str, Any], **inputs: torch.Tensor) -> None:
    def run(device: str) -> torch.Tensor:
        moved = copy.deepcopy(model).eval().to(device)
        placed = {name: value.to(device) for name, value in inputs.items()}
        torch.manual_seed(3)
        result: torch.Tensor = moved.generate(**placed, max_new_tokens=8, pad_token_id=0, **options)
        return result

    compare(run)


SEARCHES = {
    "greedily": {"do_sample": False},
    "by sampling with a seed": {"do_sample": True, "top_k": 20, "temperature": 0.9},
    "by beam search": {"do_sample": False, "num_beams": 3},
    "with a static cache": {"do_sample": False, "cache_implementation": "static"},
    "without a cache": {"do_sample": False, "use_cache": False},
}


def _add_decoder(kind: str) -> None:
    @case(f"{kind}: train")
    def learn() -> None:
        for attention in ("eager", "sdpa"):

            def run(device: str, attention: str = attention) -> Any:
                model = _decoder(kind).to(device)
                model.set_attn_implementation(attention)
                batch = {"input_ids": IDS.to(device), "attention_mask": MASK.to(device)}
                return train(model, lambda: model(**batch, labels=batch["input_ids"]).loss)

            compare(run, 1e-3, 1e-4)

    for name, options in SEARCHES.items():

        @case(f"{kind}: generate {name}")
        def write(options: dict[str, Any] = options) -> None:
            _generate(_decoder(kind), options, input_ids=IDS, attention_mask=MASK)


_add_decoder("Qwen3")
_add_decoder("Llama")
_add_decoder("Mixtral")  # experts, chosen for each token


@case("Llama: bfloat16 and float16 logits")
def half() -> None:
    for dtype in (torch.bfloat16, torch.float16):

        def run(device: str, dtype: torch.dtype = dtype) -> Any:
            model = _decoder("Llama").eval().to(device, dtype)
            with torch.no_grad():
                return model(IDS.to(device), attention_mask=MASK.to(device)).logits

        compare(run, 1e-2, 1e-2)


@case("BERT: train")
def bert() -> None:
    def run(device: str) -> Any:
        torch.manual_seed(0)
        model = BertForSequenceClassification(BertConfig(**SMALL, **TEXT, num_labels=3)).to(device)
        labels = torch.tensor([0, 2], device=device)
        batch = {"input_ids": IDS.to(device), "attention_mask": MASK.to(device)}
        return train(model, lambda: model(**batch, labels=labels).loss)

    compare(run, 1e-3, 1e-4)


@case("ViT: train")
def vit() -> None:
    def run(device: str) -> Any:
        torch.manual_seed(0)
        config = ViTConfig(**SMALL, image_size=32, patch_size=8, num_labels=5)
        model = ViTForImageClassification(config).to(device)
        pixels = torch.randn(2, 3, 32, 32).to(device)
        labels = torch.tensor([1, 4], device=device)
        return train(model, lambda: model(pixel_values=pixels, labels=labels).loss)

    compare(run, 1e-3, 1e-4)


@case("Whisper: train")
def whisper() -> None:
    def run(device: str) -> Any:
        model = _whisper().to(device)
        sound = torch.randn(2, 16, 60, generator=torch.Generator().manual_seed(4)).to(device)
        return train(model, lambda: model(input_features=sound, labels=IDS.to(device)).loss)

    compare(run, 1e-3, 1e-4)


@case("Whisper: generate greedily and by beam search")
def transcribe() -> None:
    sound = torch.randn(2, 16, 60, generator=torch.Generator().manual_seed(4))
    for name in ("greedily", "by beam search"):
        _generate(_whisper(), SEARCHES[name], input_features=sound)


if __name__ == "__main__":
    main(["transformers"])
