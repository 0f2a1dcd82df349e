"""Owns: programs that are small models as people write them, trained for a few steps and used."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..inputs import integers, normal, on_device, state_of
from ..registry import Results, program


class _Block(nn.Module):
    """A layer of a decoder: rotary positions, grouped heads, gated feed-forward."""

    def __init__(self, width: int = 32, heads: int = 4, groups: int = 2) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norm, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * groups * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up, self.gate = nn.Linear(width, 64, bias=False), nn.Linear(width, 64, bias=False)
        self.down = nn.Linear(64, width, bias=False)

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None = None) -> Any:
        y = self.norm(x)
        q = self.q(y).unflatten(-1, (self.heads, self.size)).transpose(1, 2)
        k, v = self.kv(y).unflatten(-1, (2, self.groups, self.size)).permute(2, 0, 3, 1, 4)
        start = 0 if past is None else past[0].shape[2]
        q, k = _rotated(q, start), _rotated(k, start)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=past is None, enable_gqa=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y)), (k, v)


def _rotated(x: Tensor, start: int) -> Tensor:
    half = x.shape[-1] // 2
    places = torch.arange(start, start + x.shape[2], device=x.device, dtype=torch.float32)
    speeds = 100.0 ** (-torch.arange(half, device=x.device) / half)
    angles = places[:, None] * speeds
    sine, cosine = angles.sin().to(x.dtype), angles.cos().to(x.dtype)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cosine - b * sine, a * sine + b * cosine], -1)


class _Decoder(nn.Module):
    """A language model of two layers."""

    def __init__(self, words: int = 50, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(_Block(width) for _ in range(2))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor, past: list[Any] | None = None) -> Any:
        x = self.embedding(tokens)
        kept = []
        for index, block in enumerate(self.blocks):
            x, pair = block(x, None if past is None else past[index])
            kept.append(pair)
        return self.head(self.norm(x)), kept


@program
def language_model(device: str) -> Results:
    """A decoder trained in bfloat16 with AdamW and a schedule, then asked for more words."""
    model = on_device(_Decoder(), device).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    tokens = integers(device, 50, 4, 33)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        scores, _ = model(tokens[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    results: Results = {"losses": torch.stack(losses), **state_of(model)}
    with torch.inference_mode():
        torch.manual_seed(7)
        scores, past = model(tokens[:, :5])
        words = [scores[:, -1].argmax(-1)]
        for step in range(8):
            scores, past = model(words[-1][:, None], past)
            chances = (scores[:, -1].float() / 0.8).softmax(-1)
            drawn = torch.multinomial(chances, 1)[:, 0]
            words.append(drawn if step % 2 else scores[:, -1].argmax(-1))
        results |= {"words": torch.stack(words, 1), "last scores": scores.clone()}
    return results


class _Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True), nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.skip = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.skip(x), inplace=True)


@program
def residual_network(device: str) -> Results:
    """A residual network, channels_last, with label smoothing; then its state in evaluation."""
    net: nn.Module = nn.Sequential(
        _Residual(3, 8, 1), _Residual(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(16, 5),
    )  # fmt: skip
    net = on_device(net, device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    losses = []
    for step in range(3):
        x = normal(device, 6, 3, 16, 16, seed=step).contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), integers(device, 5, 6, seed=step), label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    with torch.no_grad():
        used = net.eval()(normal(device, 2, 3, 16, 16))
    return {"losses": torch.stack(losses), "used": used, **state_of(net)}


@program
def autoencoder(device: str) -> Results:
    """A variational autoencoder: random numbers in the forward pass, and samples in the end."""
    encoder = nn.Sequential(nn.Linear(20, 16), nn.Softplus(), nn.Linear(16, 8))
    decoder = nn.Sequential(nn.Linear(4, 16), nn.Softplus(), nn.Linear(16, 20))
    model = on_device(nn.ModuleList([encoder, decoder]), device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x = normal(device, 12, 20)
    torch.manual_seed(22)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        mean, spread = encoder(x).chunk(2, -1)
        code = mean + torch.randn_like(mean) * (0.5 * spread).exp()
        surplus = 0.5 * (mean.square() + spread.exp() - 1 - spread).sum(-1)
        loss = (F.mse_loss(decoder(code), x, reduction="none").sum(-1) + surplus).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    with torch.no_grad():
        samples = decoder(torch.randn(5, 4, device=device))
    return {"losses": torch.stack(losses), "samples": samples, **state_of(model)}


@program
def diffusion(device: str) -> Results:
    """A denoiser with embedded times and an exponential average, trained and sampled from."""
    down, up = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Conv2d(8, 3, 3, padding=1)
    parts = [down, nn.GroupNorm(2, 8), nn.Embedding(10, 8), up]
    model = on_device(nn.ModuleList(parts), device)
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )

    def denoise(net: Any, x: Tensor, time: Tensor) -> Tensor:
        y = F.silu(net[1](net[0](x)) + net[2](time)[:, :, None, None])
        result: Tensor = net[3](F.interpolate(y, scale_factor=2, mode="nearest")) + x
        return result

    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=True)
    torch.manual_seed(23)
    losses = []
    for step in range(3):
        clean = normal(device, 4, 3, 16, 16, seed=step)
        time = torch.randint(10, (4,), device=device)
        noise = torch.randn_like(clean)
        mixed = clean + noise * (time / 10)[:, None, None, None]
        optimizer.zero_grad()
        loss = F.mse_loss(denoise(model, mixed, time), noise)
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
        losses.append(loss.detach())
    x = torch.randn(2, 3, 16, 16, device=device)
    with torch.no_grad():
        for moment in range(9, 0, -3):
            time = torch.full((2,), moment, device=device)
            x = x - 0.1 * denoise(average.module, x, time) + 0.05 * torch.randn_like(x)
    return {"losses": torch.stack(losses), "sample": x, **state_of(average)}


@program
def recurrent_translator(device: str) -> Results:
    """An encoder and a decoder of recurrent layers with attention between them."""
    words = nn.Embedding(30, 12)
    encoder, decoder = nn.GRU(12, 8, bidirectional=True), nn.LSTM(12, 16)
    model = on_device(nn.ModuleList([words, encoder, decoder, nn.Linear(32, 30)]), device)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
    source, target = integers(device, 30, 7, 3), integers(device, 30, 6, 3, seed=2)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        memory, _ = encoder(words(source))
        output, _ = decoder(words(target[:-1]))
        q, k = output.transpose(0, 1), memory.transpose(0, 1)
        seen = F.scaled_dot_product_attention(q, k, k).transpose(0, 1)
        scores = model[3](torch.cat([output, seen], -1))
        loss = F.cross_entropy(scores.flatten(0, 1), target[1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return {"losses": torch.stack(losses), "scores": scores.detach(), **state_of(model)}
