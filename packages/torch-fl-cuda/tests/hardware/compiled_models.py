"""Owns: five models, what Dynamo makes of them, and what a process finds in the compiler's caches:
the same on CUDA used natively and on flagos. Run by test_compiled_models.py in a child for each.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.utils import counters


class Recurrent(nn.Module):
    """A cell over eight steps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(16, 32)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], 32)
        for step in x.unbind(1):
            state = self.cell(step, state)
        return state


class Language(nn.Module):
    """A causal block over embedded tokens, with its loss."""

    def __init__(self, vocabulary: int = 64, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.norm = nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        heads = self.qkv(self.norm(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*heads.unbind(0), is_causal=True)
        logits = self.out(x + attended.transpose(1, 2).flatten(-2))
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def models() -> dict[str, tuple[nn.Module, Tensor]]:
    """Modules and arguments, on the host; the same whenever they are made."""
    torch.manual_seed(0)
    convolution = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    encoder = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    return {
        "mlp": (nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)), torch.randn(8, 16)),
        "convolution": (nn.Sequential(*convolution, nn.Flatten()), torch.randn(4, 3, 16, 16)),
        "encoder": (encoder, torch.randn(4, 10, 32)),
        "recurrent": (Recurrent(), torch.randn(4, 8, 16)),
        "language": (Language(), torch.randint(64, (2, 12))),
    }


def breaks(device: str) -> dict[str, list[int]]:
    """For each model its graph breaks and its graphs."""
    found = {}
    for name, (model, x) in models().items():
        torch._dynamo.reset()
        said = torch._dynamo.explain(model.to(device))(x.to(device))
        found[name] = [said.graph_break_count, said.graph_count]
    return found


def trained(device: str) -> dict[str, Any]:
    """The loss of a compiled training step of each model, and what came from caches."""
    losses = {}
    for name, (model, x) in models().items():
        model.to(device)
        loss = torch.compile(model)(x.to(device)).square().mean()
        loss.backward()
        losses[name] = loss.item()
    kinds = ("fxgraph_cache_hit", "fxgraph_cache_miss", "fxgraph_cache_bypass")
    whole = ("autograd_cache_hit", "autograd_cache_miss", "autograd_cache_bypass")
    return {
        "losses": losses,
        "graphs": {kind: int(counters["inductor"][kind]) for kind in kinds},
        "whole": {kind: int(counters["aot_autograd"][kind]) for kind in whole},
    }
