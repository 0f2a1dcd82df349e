"""Owns: a small training of many kinds of layers, whose whole state can be kept and restored."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

D = "flagos"
KINDS = ("for-loop", "foreach", "fused")


class Net(nn.Module):
    """Convolution, batch norm, embedding, LSTM, attention, layer norm, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.batch_norm = nn.BatchNorm2d(4)
        self.embedding = nn.Embedding(11, 16)
        self.lstm = nn.LSTM(16, 16, batch_first=True)
        self.attention = nn.MultiheadAttention(16, 2, dropout=0.1, batch_first=True)
        self.layer_norm = nn.LayerNorm(16)
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(16, 5)

    def forward(self, image: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        pixels = torch.relu(self.batch_norm(self.conv(image))).mean(dim=(2, 3))
        read, _ = self.lstm(self.embedding(words))
        seen = torch.cat([read, pixels.repeat(1, 4)[:, None]], dim=1)
        attended, _ = self.attention(seen, seen, seen, need_weights=False)
        logits: torch.Tensor = self.head(self.dropout(self.layer_norm(seen + attended)).mean(dim=1))
        return logits


@dataclass
class Kept:
    """A training's state on the CPU."""

    tensors: list[torch.Tensor]
    scaler: dict[str, Any]
    random: torch.Tensor


@dataclass
class Training:
    """One model with its optimizer, one step at a time, on `device`.

    `kind` is AdamW's implementation; with `autocast` the step runs in float16 under a GradScaler.
    """

    kind: str = "foreach"
    autocast: bool = False
    device: str = D
    net: Net = field(init=False)
    optimizer: torch.optim.Optimizer = field(init=False)
    scaler: torch.amp.GradScaler = field(init=False)

    def __post_init__(self) -> None:
        torch.manual_seed(3)
        self.net = Net().to(self.device)
        flags = {name: self.kind == name for name in ("foreach", "fused")}
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3, **flags)
        self.scaler = self._new_scaler()
        images = torch.sin(torch.arange(2 * 8 * 8.0)).reshape(2, 1, 8, 8)
        self.image = images.pin_memory() if self.device != "cpu" else images
        self.words = torch.arange(2 * 6).reshape(2, 6) % 11
        self.target = torch.tensor([1, 4])

    def step(self) -> float:
        """A whole step from data on the host to the loss; gradients are zeroed first."""
        self.optimizer.zero_grad()
        image, words, target = (
            x.to(self.device, non_blocking=True) for x in (self.image, self.words, self.target)
        )
        kind = torch.device(self.device).type
        # Without the cache of casts: PyTorch keeps one for all threads, and one thread's leaving
        # empties it amid another one's step, which rounds the sum of gradients in another way.
        context = (
            torch.autocast(kind, torch.float16, cache_enabled=False)
            if self.autocast
            else contextlib.nullcontext()
        )
        with context:
            loss = nn.functional.cross_entropy(self.net(image, words), target)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()

    def keep(self) -> Kept:
        """A copy of all that a step changes."""
        random = self._module().get_rng_state(self.device)
        copies = [x.detach().cpu().clone() for x in self._tensors()]
        return Kept(copies, self.scaler.state_dict(), random)

    def restore(self, kept: Kept) -> None:
        """Back to `kept`, as a user would do after a failed step: in place, gradients dropped."""
        self.optimizer.zero_grad()
        for left in ("grad_scale", "found_inf"):  # PyTorch's scaler leaves them where a step fails
            self.optimizer.__dict__.pop(left, None)
        with torch.no_grad():
            for mine, its in zip(self._tensors(), kept.tensors, strict=True):
                mine.copy_(its)
        self.scaler = self._new_scaler()
        self.scaler.load_state_dict(kept.scaler)
        self._module().set_rng_state(kept.random, self.device)

    def forget(self) -> None:
        """Drops what the first step made: gradients, state of the optimizer, the scaler."""
        self.optimizer.zero_grad()
        self.optimizer.state.clear()
        self.scaler = self._new_scaler()

    def differences(self, kept: Kept) -> list[int]:
        """Which tensors of the state are not, bit for bit, what `kept` holds."""
        pairs = zip(self._tensors(), kept.tensors, strict=True)
        return [index for index, (mine, its) in enumerate(pairs) if not mine.cpu().equal(its)]

    def _module(self) -> Any:
        return torch.get_device_module(self.device)

    def _new_scaler(self) -> torch.amp.GradScaler:
        kind = torch.device(self.device).type
        return torch.amp.GradScaler(kind, init_scale=256.0, enabled=self.autocast)

    def _tensors(self) -> list[torch.Tensor]:
        moments = [
            value
            for parameter in self.net.parameters()
            for value in self.optimizer.state.get(parameter, {}).values()
        ]
        return [*self.net.state_dict().values(), *moments]
