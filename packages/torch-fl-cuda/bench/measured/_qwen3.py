"""Owns: a plain PyTorch model in the shape of Qwen3, for machines without transformers.

Grouped queries with a norm on each head, rotary positions, SwiGLU, tied embeddings.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROTARY_BASE = 1_000_000.0


class RMSNorm(nn.Module):
    """Scales the last dimension to a root mean square of 1; computed in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        return self.weight * scaled.to(x.dtype)


def rotation(positions: Tensor, head_dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines of (positions, head_dim)."""
    exponents = torch.arange(0, head_dim, 2, device=positions.device).float() / head_dim
    angles = positions.float()[:, None] / ROTARY_BASE**exponents
    angles = torch.cat((angles, angles), -1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, turned: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary positions on (batch, heads, positions, head_dim)."""
    cosine, sine = turned
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat((-second, first), -1) * sine


class Cache:
    """Keys and values of every layer in buffers of a fixed length."""

    def __init__(self, size: dict[str, Any], length: int, device: torch.device) -> None:
        shape = (2, size["layers"], 1, size["kv_heads"], length, size["head_dim"])
        self.keys, self.values = torch.zeros(shape, dtype=torch.bfloat16, device=device)
        self.places = torch.arange(length, device=device)

    def write(
        self, layer: int, positions: Tensor, key: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Puts new positions of a layer in their place; returns all that it has."""
        self.keys[layer].index_copy_(2, positions, key)
        self.values[layer].index_copy_(2, positions, value)
        return self.keys[layer], self.values[layer]


class Block(nn.Module):
    """One layer."""

    def __init__(self, size: dict[str, Any]) -> None:
        super().__init__()
        hidden, head_dim, inner = size["hidden"], size["head_dim"], size["intermediate"]
        self.head_dim = head_dim
        self.query = nn.Linear(hidden, size["heads"] * head_dim, bias=False)
        self.key = nn.Linear(hidden, size["kv_heads"] * head_dim, bias=False)
        self.value = nn.Linear(hidden, size["kv_heads"] * head_dim, bias=False)
        self.output = nn.Linear(size["heads"] * head_dim, hidden, bias=False)
        self.query_norm, self.key_norm = RMSNorm(head_dim), RMSNorm(head_dim)
        self.gate = nn.Linear(hidden, inner, bias=False)
        self.up = nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)
        self.before, self.after = RMSNorm(hidden), RMSNorm(hidden)

    def forward(
        self,
        x: Tensor,
        turned: tuple[Tensor, Tensor],
        cached: tuple[Cache, int, Tensor, Tensor] | None,
    ) -> Tensor:
        attended = self._attend(self.before(x), turned, cached)
        x = x + self.output(attended.transpose(1, 2).flatten(2))
        y = self.after(x)
        found: Tensor = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return found

    def _attend(
        self,
        x: Tensor,
        turned: tuple[Tensor, Tensor],
        cached: tuple[Cache, int, Tensor, Tensor] | None,
    ) -> Tensor:
        split = (*x.shape[:2], -1, self.head_dim)
        query = rotate(self.query_norm(self.query(x).view(split)).transpose(1, 2), turned)
        key = rotate(self.key_norm(self.key(x).view(split)).transpose(1, 2), turned)
        value = self.value(x).view(split).transpose(1, 2)
        if cached is None:
            return F.scaled_dot_product_attention(
                query, key, value, is_causal=True, enable_gqa=True
            )
        cache, layer, positions, mask = cached
        key, value = cache.write(layer, positions, key, value)
        return F.scaled_dot_product_attention(query, key, value, mask, enable_gqa=True)


class Qwen3(nn.Module):
    """The language model: tokens (batch, positions) to logits (batch, positions, vocabulary)."""

    def __init__(self, size: dict[str, Any]) -> None:
        super().__init__()
        self.head_dim = size["head_dim"]
        self.embedding = nn.Embedding(size["vocabulary"], size["hidden"])
        self.blocks = nn.ModuleList(Block(size) for _ in range(size["layers"]))
        self.norm = RMSNorm(size["hidden"])
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(
        self, tokens: Tensor, positions: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.embedding(tokens)
        turned = rotation(positions, self.head_dim, x.dtype)
        mask = cache.places <= positions[:, None] if cache is not None else None
        for layer, block in enumerate(self.blocks):
            cached = None if cache is None else (cache, layer, positions, mask)
            x = block(x, turned, cached)
        if cache is not None:
            x = x[:, -1:]
        return F.linear(self.norm(x), self.embedding.weight)


@torch.inference_mode()
def greedy(model: Qwen3, prompt: Tensor, tokens: int, cache: Cache) -> Tensor:
    """`tokens` tokens after `prompt` (1, positions); nothing waits for the device."""
    token = model(prompt, cache.places[: prompt.shape[1]], cache).argmax(-1)
    found = [token]
    for place in range(prompt.shape[1], prompt.shape[1] + tokens - 1):
        token = model(token, cache.places[place : place + 1], cache).argmax(-1)
        found.append(token)
    return torch.cat(found, 1)
