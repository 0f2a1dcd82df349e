"""Owns: x-transformers: a decoder that trains and writes, and an encoder."""

from __future__ import annotations

from typing import Any

import torch
from x_transformers import AutoregressiveWrapper, Decoder, Encoder, TransformerWrapper

from ci.ecosystem.harness import case, compare, main, train

IDS = torch.randint(0, 50, (2, 17), generator=torch.Generator().manual_seed(1))


def _decoder(device: str, **options: Any) -> Any:
    torch.manual_seed(0)
    layers = Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, **options)
    model = TransformerWrapper(num_tokens=50, max_seq_len=64, attn_layers=layers)
    return AutoregressiveWrapper(model).to(device)


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rotary, RMSNorm, SwiGLU": {"rotary_pos_emb": True, "use_rmsnorm": True, "ff_swish": True},
    "flash attention, one key and value head": {"attn_flash": True, "attn_one_kv_head": True},
    "ALiBi, dropout": {"alibi_pos_bias": True, "attn_dropout": 0.1, "ff_dropout": 0.1},
}


def _add(name: str, options: dict[str, Any]) -> None:
    @case(f"decoder ({name}): train")
    def learn() -> None:
        def run(device: str) -> Any:
            model, ids = _decoder(device, **options), IDS.to(device)
            torch.manual_seed(1)
            return train(model, lambda: model(ids))

        compare(run, 1e-3, 1e-4)


for _name, _options in VARIANTS.items():
    _add(_name, _options)


@case("decoder: generate greedily and by sampling, with a cache")
def write() -> None:
    for temperature in (0.0, 1.0):

        def run(device: str, temperature: float = temperature) -> Any:
            model = _decoder(device, rotary_pos_emb=True).eval()
            torch.manual_seed(3)
            return model.generate(IDS[:, :4].to(device), 8, temperature=temperature)

        compare(run)


@case("encoder with a mask: train")
def encode() -> None:
    def run(device: str) -> Any:
        torch.manual_seed(0)
        layers = Encoder(dim=32, depth=2, heads=4, attn_dim_head=8)
        model = TransformerWrapper(num_tokens=50, max_seq_len=64, attn_layers=layers).to(device)
        ids, mask = IDS.to(device), (IDS > 5).to(device)
        return train(model, lambda: model(ids, mask=mask).square().mean())

    compare(run, 1e-3, 1e-4)


if __name__ == "__main__":
    main(["x-transformers"])
