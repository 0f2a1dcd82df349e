"""Owns: programs with losses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..inputs import each, integers, loss_of, normal
from ..registry import Results, program


@program
def classification_losses(device: str) -> Results:
    """Cross entropy and its relatives: weights, smoothing, classes left out, probabilities."""
    classes = integers(device, 5, 6)
    some = classes.clone()
    some[1] = -100
    weight = normal(device, 5, seed=4).abs()
    chances = normal(device, 6, 5, seed=5).softmax(1)
    pixels = integers(device, 5, 6, 3, 3)
    calls: dict[str, Callable[[Tensor], Tensor]] = {
        "plain": lambda x: F.cross_entropy(x, classes),
        "weights": lambda x: F.cross_entropy(x, classes, weight.to(x.dtype)),
        "smoothed": lambda x: F.cross_entropy(x, some, label_smoothing=0.2),
        "left out": lambda x: F.cross_entropy(x, some, reduction="none"),
        "sum": lambda x: F.cross_entropy(x, classes, reduction="sum", ignore_index=2),
        "probabilities": lambda x: F.cross_entropy(x, chances.to(x.dtype), label_smoothing=0.1),
        "nll": lambda x: F.nll_loss(x.log_softmax(1), classes, weight.to(x.dtype)),
        "pixels": lambda x: F.cross_entropy(x[..., None, None].expand(6, 5, 3, 3), pixels),
        "margins": lambda x: F.multi_margin_loss(x, classes),
        "labels": lambda x: F.multilabel_soft_margin_loss(x, chances.round().to(x.dtype)),
        "binary": lambda x: F.binary_cross_entropy(x.sigmoid(), chances.to(x.dtype)),
        "logits": lambda x: F.binary_cross_entropy_with_logits(
            x, chances.to(x.dtype), pos_weight=weight.to(x.dtype)
        ),
        "divergence": lambda x: F.kl_div(
            x.log_softmax(1), chances.to(x.dtype), reduction="batchmean"
        ),
    }
    results: Results = {}
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for name, call in calls.items():
            if dtype != torch.bfloat16 or name not in ("margins", "labels"):
                made = _loss(call, device, dtype)
                results |= {f"{dtype} {name} {key}": value for key, value in made.items()}
    return results


@program(since=(2, 13))
def linear_cross_entropy(device: str) -> Results:
    """A vocabulary's scores and their cross entropy, without ever having all scores."""
    results: Results = {}
    for dtype in (torch.float32, torch.bfloat16):
        x = normal(device, 24, 32, dtype=dtype, grad=True)
        weight = normal(device, 300, 32, seed=2, dtype=dtype, grad=True)
        loss = F.linear_cross_entropy(x, weight, integers(device, 300, 24))
        loss.backward()
        assert x.grad is not None
        assert weight.grad is not None
        results |= {f"{dtype} loss": loss.detach(), f"{dtype} grad": x.grad}
        results[f"{dtype} grad of the weight"] = weight.grad
    return results


@program
def regression_losses(device: str) -> Results:
    """Losses between numbers, and between rows."""
    y = normal(device, 6, 5, seed=3)
    sign = y[:, 0].sign()
    calls: dict[str, Callable[[Tensor], Tensor]] = {
        "squares": lambda x: F.mse_loss(x, y),
        "absolute": lambda x: F.l1_loss(x, y, reduction="sum"),
        "smooth": lambda x: F.smooth_l1_loss(x, y, beta=0.7),
        "huber": lambda x: F.huber_loss(x, y, delta=0.3, reduction="none"),
        "poisson": lambda x: F.poisson_nll_loss(x, y.abs(), full=True),
        "gaussian": lambda x: F.gaussian_nll_loss(x, y, y.square()),
        "hinge": lambda x: F.hinge_embedding_loss(x, y.sign()),
        "cosine": lambda x: F.cosine_embedding_loss(x, y, sign),
        "triplet": lambda x: F.triplet_margin_loss(x, y, y.roll(1, 0), swap=True),
        "ranking": lambda x: F.margin_ranking_loss(x[:, 0], y[:, 0], sign),
        "soft margin": lambda x: F.soft_margin_loss(x, y.sign()),
    }
    return each((name, partial(_loss, call, device, torch.float32)) for name, call in calls.items())


def _loss(call: Callable[[Tensor], Tensor], device: str, dtype: torch.dtype) -> Results:
    x = normal(device, 6, 5, dtype=dtype, grad=True)
    loss = call(x)
    loss_of(loss).backward()
    assert x.grad is not None
    return {"loss": loss.detach(), "grad": x.grad}


def _ctc(device: str, calls: dict[str, Callable[[Tensor], Tensor]]) -> Results:
    results: Results = {}
    for name, call in calls.items():
        x = normal(device, 20, 3, 10, grad=True)
        loss = call(x.log_softmax(2))
        loss_of(loss.nan_to_num(posinf=0.0)).backward()
        assert x.grad is not None
        results |= {name: loss.detach(), f"{name} grad": x.grad}
    return results


@program
def ctc(device: str) -> Results:
    """Connectionist temporal classification: lengths as tensors and lists, impossible targets."""
    targets = integers(device, 9, 3, 6) + 1
    times, lengths = torch.tensor([20, 15, 4]), torch.tensor([6, 3, 5])
    lists: Any = times.tolist(), lengths.tolist()
    return _ctc(
        device,
        {
            "on the device": lambda x: F.ctc_loss(
                x, targets, times.to(device), lengths.to(device), zero_infinity=True
            ),
            "lists": lambda x: F.ctc_loss(x, targets, lists[0], lists[1], reduction="none"),
        },
    )


@program
def ctc_from_the_cpu(device: str) -> Results:
    """The same with what one library's kernel asks for: targets of 32 bits on the CPU."""
    targets = integers("cpu", 9, 14, dtype=torch.int32) + 1
    times, lengths = torch.full((3,), 20).int(), torch.tensor([6, 3, 5]).int()
    return _ctc(
        device,
        {
            "loss": lambda x: F.ctc_loss(x, targets, times.to(device), lengths.to(device)),
            "lengths too": lambda x: F.ctc_loss(x, targets, times, lengths, reduction="sum"),
        },
    )
