"""Owns: layers of networks: norms, convolutions, pools, embeddings, losses."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ..program import Place, Program, graph


@graph("layers/norms")
def _(at: Place) -> Program:
    def norms(x: Any, w: Any, b: Any) -> Any:
        y = functional.layer_norm(x, (24,), w, b)
        return y * functional.rms_norm(x, (24,), w), functional.group_norm(x[..., None], 2)

    given = (at.normal(5, 24, grad=True), at.normal(24, grad=True), at.normal(24, grad=True))
    return Program(norms, [given], gradients=True, tolerance=1e-4)


@graph("layers/batch-norm")
def _(at: Place) -> Program:
    norm = at.layer(lambda: nn.BatchNorm2d(3))
    calls = [(at.normal(4, 3, 5, 5, grad=True),), (at.normal(4, 3, 5, 5, grad=True),)]
    return Program(lambda x: norm(x).relu(), calls, [norm], gradients=True, tolerance=1e-4)


@graph("layers/batch-norm-frozen")
def _(at: Place) -> Program:
    norm = at.layer(lambda: nn.BatchNorm1d(8)).eval()
    return Program(lambda x: norm(x) + 1, [(at.normal(4, 8),)], [norm])


@graph("layers/convolution")
def _(at: Place) -> Program:
    conv = at.layer(lambda: nn.Conv2d(3, 6, 3, padding=1, stride=2))
    return Program(
        lambda x: conv(x).relu() + 1,
        [(at.normal(2, 3, 9, 9, grad=True),)],
        [conv],
        gradients=True,
        tolerance=1e-4,
    )


@graph("layers/convolution-kinds", slow=True)
def _(at: Place) -> Program:
    def kinds(x: Any, w: Any, v: Any) -> Any:
        deep = functional.conv2d(x, w, groups=4, dilation=2)
        return functional.conv_transpose2d(deep, v, stride=2), functional.conv1d(
            x[:, :, 0], w[:, :, 0], groups=4
        )

    given = (at.normal(2, 4, 8, 8), at.normal(8, 1, 3, 3), at.normal(8, 2, 2, 2))
    return Program(kinds, [given], tolerance=1e-4)


@graph("layers/channels-last")
def _(at: Place) -> Program:
    conv = at.layer(lambda: nn.Conv2d(4, 8, 1)).to(memory_format=torch.channels_last)
    x = at.normal(2, 4, 6, 6).to(memory_format=torch.channels_last)
    return Program(lambda x: functional.silu(conv(x)), [(x,)], [conv], tolerance=1e-4)


@graph("layers/pools")
def _(at: Place) -> Program:
    def pools(x: Any) -> Any:
        return functional.max_pool2d(x, 2) + functional.avg_pool2d(x, 2), x.mean((2, 3))

    return Program(pools, [(at.normal(2, 3, 8, 8, grad=True),)], gradients=True)


@graph("layers/pools-more", slow=True)
def _(at: Place) -> Program:
    def pools(x: Any) -> Any:
        return (
            functional.max_pool2d(x, 3, stride=2, padding=1, return_indices=True),
            functional.avg_pool2d(x, 3, 1, 1),
            functional.adaptive_avg_pool2d(x, (3, 2)),
            functional.interpolate(x, scale_factor=2, mode="nearest"),
        )

    return Program(pools, [(at.normal(2, 3, 8, 8, grad=True),)], gradients=True)


@graph("layers/resizing", slow=True)
def _(at: Place) -> Program:
    def resizing(x: Any) -> Any:
        return (
            functional.interpolate(x, size=(11, 5), mode="bilinear"),
            functional.interpolate(x, size=(4, 9), mode="bicubic", align_corners=True),
            functional.pad(x, (1, 2, 0, 1), mode="reflect"),
        )

    return Program(resizing, [(at.normal(1, 2, 7, 6, grad=True),)], gradients=True, tolerance=1e-4)


@graph("layers/embedding")
def _(at: Place) -> Program:
    table = at.layer(lambda: nn.Embedding(11, 6, padding_idx=0))
    return Program(
        lambda i: table(i).sum(1).tanh(), [(at.integers(4, 5, high=11),)], [table], gradients=True
    )


@graph("layers/embedding-sparse")
def _(at: Place) -> Program:
    table = at.layer(lambda: nn.Embedding(11, 6, sparse=True))
    return Program(
        lambda i: table(i).sum(1).tanh(), [(at.integers(4, 5, high=11),)], [table], gradients=True
    )


@graph("layers/embedding-bag")
def _(at: Place) -> Program:
    return Program(
        lambda i, w, o: functional.embedding_bag(i, w, o, mode="mean") * 2,
        [
            (
                at.integers(9, high=7),
                at.normal(7, 4),
                at.integers(3, low=0, high=1) + torch.tensor([0, 3, 5], device=at.device),
            )
        ],
    )


@graph("layers/losses")
def _(at: Place) -> Program:
    def losses(x: Any, i: Any, y: Any) -> Any:
        return (
            functional.cross_entropy(x, i, label_smoothing=0.1, ignore_index=0)
            + functional.smooth_l1_loss(x, y)
            + functional.binary_cross_entropy_with_logits(x, y.sigmoid())
        )

    given = (at.normal(6, 9, grad=True), at.integers(6, high=9), at.normal(6, 9))
    return Program(losses, [given], gradients=True)


@graph("layers/recurrent-cell")
def _(at: Place) -> Program:
    cell = at.layer(lambda: nn.LSTMCell(5, 6))
    given = (at.normal(3, 5, grad=True), at.normal(3, 6), at.normal(3, 6))
    return Program(lambda x, h, c: cell(x, (h, c)), [given], [cell], gradients=True, tolerance=1e-4)


@graph("layers/gru-steps", slow=True)
def _(at: Place) -> Program:
    cell = at.layer(lambda: nn.GRUCell(4, 5))

    def steps(x: Any, h: Any) -> Any:
        outs = []
        for one in x.unbind(0):
            h = cell(one, h)
            outs.append(h)
        return torch.stack(outs)

    given = (at.normal(4, 2, 4, grad=True), at.normal(2, 5))
    return Program(steps, [given], [cell], gradients=True, tolerance=1e-4)


@graph("layers/attention")
def _(at: Place) -> Program:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True) * 2

    given = tuple(at.normal(2, 2, 8, 16, grad=True) for _ in range(3))
    return Program(attention, [given], gradients=True, tolerance=1e-4)


@graph("layers/attention-masked", slow=True)
def _(at: Place) -> Program:
    def attention(q: Any, k: Any, m: Any) -> Any:
        scores = (q @ k.transpose(-2, -1)).div(4.0).masked_fill(m, float("-inf"))
        return scores.softmax(-1) @ k, functional.scaled_dot_product_attention(
            q, k, k, attn_mask=~m
        )

    mask = torch.ones(8, 8, dtype=torch.bool).triu(1).to(at.device)
    return Program(
        attention, [(at.normal(2, 2, 8, 16), at.normal(2, 2, 8, 16), mask)], tolerance=1e-4
    )


@graph("layers/attention-half")
def _(at: Place) -> Program:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    given = tuple(at.normal(2, 2, 8, 16, dtype=torch.float16, grad=True) for _ in range(3))
    return Program(attention, [given], gradients=True, tolerance=2e-2)


@graph("layers/attention-grouped")
def _(at: Place) -> Program:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    heads = (4, 2, 2)
    given = tuple(at.normal(2, count, 8, 16, dtype=torch.bfloat16) for count in heads)
    return Program(attention, [given], tolerance=5e-2)


@graph("layers/attention-dropout")
def _(at: Place) -> Program:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, dropout_p=0.25)

    given = tuple(at.normal(2, 2, 8, 16, grad=True) for _ in range(3))
    return Program(attention, [given] * 2, gradients=True, random=True)
