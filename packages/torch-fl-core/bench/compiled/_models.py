"""Owns: the models of `./dev bench compile`: what is compiled, and a step that calls it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from _qwen3 import Cache, Qwen3
from _qwen3_workloads import trace
from _resnet import resnet
from torch import Tensor, nn


@dataclass
class Step:
    """`function` is what is compiled, `run` calls it, or its compiled form, for one step.

    `trace` makes a number of what a step gave, by which both sides are seen to compute the same.
    """

    function: Callable[..., Any]
    run: Callable[[Callable[..., Any]], Tensor]
    units: int = 1
    trains: bool = True
    trace: Callable[[Tensor], float] = lambda found: float(found.detach().float().sum().item())


def make(device: torch.device, size: dict[str, Any]) -> Step:
    """The named model in its dtype, with random inputs that stay the same."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, size["dtype"]))
    try:
        with device:
            return _MODELS[size["model"]](device, size)
    finally:
        torch.set_default_dtype(before)


def _of_loss(model: nn.Module, loss: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> Step:
    """Forward and backward of a loss; no optimizer, whose kernels are not what is compiled."""
    parameters = list(model.parameters())

    def run(function: Callable[..., Any]) -> Tensor:
        for parameter in parameters:
            parameter.grad = None
        found: Tensor = function(*inputs)
        found.backward()
        return found

    return Step(loss, run)


def _mlp(device: torch.device, size: dict[str, Any]) -> Step:
    width = size["width"]
    layers: list[nn.Module] = []
    for _ in range(size["layers"]):
        layers += [nn.Linear(width, width), nn.GELU()]
    model = nn.Sequential(*layers[:-1])
    inputs = (torch.randn(size["batch"], width), torch.randn(size["batch"], width))
    return _of_loss(model, lambda x, target: F.mse_loss(model(x), target), inputs)


def _conv(device: torch.device, size: dict[str, Any]) -> Step:
    model = resnet(size).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = torch.randn(size["batch"], 3, size["image"], size["image"])
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(size["classes"], (size["batch"],))
    return _of_loss(model, lambda x, y: F.cross_entropy(model(x).float(), y), (images, labels))


class _Block(nn.Module):
    """Attention and a perceptron, each after a layer norm and around which the input goes."""

    def __init__(self, size: dict[str, Any], attend: Callable[..., Tensor]) -> None:
        super().__init__()
        hidden = size["hidden"]
        self._heads, self._attend = size["heads"], attend
        self.before, self.after = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.split, self.join = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, size["inner"]), nn.Linear(size["inner"], hidden)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.split(self.before(x)).chunk(3, -1)
        query, key, value = (p.unflatten(-1, (self._heads, -1)).transpose(1, 2) for p in parts)
        attended = self._attend(query, key, value).transpose(1, 2).flatten(2)
        x = x + self.join(attended)
        found: Tensor = x + self.down(F.gelu(self.up(self.after(x))))
        return found


def _fused(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def _blocks(size: dict[str, Any], attend: Callable[..., Tensor]) -> Step:
    model = nn.Sequential(*(_Block(size, attend) for _ in range(size["layers"])))
    x = torch.randn(size["batch"], size["length"], size["hidden"])
    if size["train"]:
        return _of_loss(model, lambda x: model(x).float().square().mean(), (x,))

    def run(function: Callable[..., Any]) -> Tensor:
        with torch.no_grad():
            found: Tensor = function(x)
        return found

    return Step(model, run, trains=False)


def _transformer(device: torch.device, size: dict[str, Any]) -> Step:
    return _blocks(size, _fused)


def _flex(device: torch.device, size: dict[str, Any]) -> Step:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def causal(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return query >= key

    def nearer(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return score - (query - key) * 0.01

    length = size["length"]
    mask = create_block_mask(causal, None, None, length, length, device=device)

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        found: Tensor = flex_attention(query, key, value, score_mod=nearer, block_mask=mask)
        return found

    return _blocks(size, attend)


def _qwen3_train(device: torch.device, size: dict[str, Any]) -> Step:
    model = Qwen3(size)
    tokens = torch.randint(size["vocabulary"], (size["batch"], size["length"]))

    def loss(tokens: Tensor) -> Tensor:
        logits = model(tokens)[:, :-1].float()
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    return _of_loss(model, loss, (tokens,))


def _qwen3_decode(device: torch.device, size: dict[str, Any]) -> Step:
    model = Qwen3(size).eval()
    length = size["prompt"] + size["tokens"]
    cache = Cache(size, length, device)
    cache.keys, cache.values = (
        cache.keys.to(model_dtype(model)),
        cache.values.to(model_dtype(model)),
    )
    prompt = torch.randint(size["vocabulary"], (1, size["prompt"]))
    places = cache.places.split(1)

    def next_token(token: Tensor, place: Tensor) -> Tensor:
        found: Tensor = model(token, place, cache).argmax(-1)
        return found

    def run(function: Callable[..., Any]) -> Tensor:
        found = []
        with torch.no_grad():
            token = next_token(prompt, cache.places[: size["prompt"]])
            for place in range(size["prompt"], length):
                torch.compiler.cudagraph_mark_step_begin()
                token = function(token, places[place]).clone()
                found.append(token)
        return torch.cat(found, 1)

    def trace_of(tokens: Tensor) -> float:
        """Of the whole text, as the model sees it eagerly: a sum of tokens would be another one for
        a single token that falls the other way."""
        with torch.no_grad():
            return trace(model(torch.cat((prompt, tokens), 1)))

    return Step(next_token, run, units=size["tokens"], trains=False, trace=trace_of)


def model_dtype(model: nn.Module) -> torch.dtype:
    """The dtype of a model's first parameter."""
    return next(model.parameters()).dtype


_MODELS: dict[str, Callable[[torch.device, dict[str, Any]], Step]] = {
    "mlp": _mlp,
    "conv": _conv,
    "transformer": _transformer,
    "flex": _flex,
    "qwen3-train": _qwen3_train,
    "qwen3-decode": _qwen3_decode,
}
