"""Owns: pieces of work of single operators: products, losses, embeddings, images, distances."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import torch
from torch.nn import functional
from workloads_of_kernels import (
    Operator,
    Step,
    list_operator,
    of_operator,
    random,
    setting,
    with_backward,
    work,
)

bf16, fp16, fp32 = torch.bfloat16, torch.float16, torch.float32
fp8 = torch.float8_e4m3fn


# -- products


def _product(device: str, tf32: bool, **options: Any) -> Step:
    step = of_operator(device, torch.mm, (256, 128), (128, 192), **options)

    def with_setting() -> None:
        with setting(torch.backends.cuda.matmul, "allow_tf32", tf32):
            step()

    return with_setting


for _dtype, _tf32 in itertools.product((bf16, fp16, fp32), (False, True)):
    work(f"mm {str(_dtype)[6:]}{' tf32' if _tf32 else ''}")(
        partial(_product, tf32=_tf32, dtype=_dtype)
    )
for _dtype in (bf16, fp32):
    list_operator(
        f"baddbmm {_dtype}", torch.baddbmm, (4, 64, 48), (4, 64, 32), (4, 32, 48), dtype=_dtype
    )
    for _rows in ((64,), (4, 32)):
        list_operator(
            f"linear {_dtype} {len(_rows) + 1}-d",
            functional.linear,
            (*_rows, 128),
            (96, 128),
            (96,),
            dtype=_dtype,
        )
list_operator("linear without bias", functional.linear, (4, 32, 128), (96, 128), dtype=bf16)
list_operator(
    "addmm with relu", torch._addmm_activation, (96,), (64, 128), (128, 96), dtype=bf16, grad=False
)
list_operator("matmul broadcast", torch.matmul, (3, 1, 32, 64), (5, 64, 32))
list_operator("einsum", lambda a, b: torch.einsum("bij,bjk->bik", a, b), (3, 32, 64), (3, 64, 32))


@work("_scaled_mm")
def _scaled(device: str) -> Step:
    a, b = (random(device, n, 128, grad=False).to(fp8) for n in (64, 96))
    one = torch.ones((), device=device)
    return lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=bf16)


@work("_scaled_mm by rows")
def _scaled_by_rows(device: str) -> Step:
    a, b = (random(device, n, 128, grad=False).to(fp8) for n in (64, 96))
    of_a, of_b = torch.ones(64, 1, device=device), torch.ones(1, 96, device=device)
    return lambda: torch._scaled_mm(a, b.t(), of_a, of_b, out_dtype=bf16)


@work("_int_mm")
def _int_mm(device: str) -> Step:
    a, b = (torch.randint(-9, 9, shape).to(device, torch.int8) for shape in ((64, 128), (128, 96)))
    return lambda: torch._int_mm(a, b)


# -- losses, softmax, embeddings


@work("cross_entropy")
def _cross_entropy(device: str, **options: Any) -> Step:
    x, target = random(device, 64, 100), torch.randint(100, (64,)).to(device)
    return with_backward(lambda: functional.cross_entropy(x, target, **options), x)


work("cross_entropy smoothed")(partial(_cross_entropy, label_smoothing=0.1))


@work("cross_entropy of images")
def _cross_entropy_2d(device: str) -> Step:
    x, target = random(device, 2, 10, 16, 16), torch.randint(10, (2, 16, 16)).to(device)
    return with_backward(lambda: functional.cross_entropy(x, target), x)


for _dtype, _width in itertools.product((bf16, fp32), (100, 5000)):
    list_operator(
        f"softmax {_dtype} {_width}", functional.softmax, (32, _width), dtype=_dtype, dim=-1
    )
list_operator("gelu", functional.gelu, (64, 64), dtype=bf16)
list_operator("dropout", functional.dropout, (64, 64), p=0.3)


@work("embedding")
def embedding(device: str, operator: Operator = functional.embedding, **options: Any) -> Step:
    table, rows = random(device, 100, 16), torch.randint(100, (8, 24)).to(device)
    return with_backward(lambda: operator(rows, table, **options), table)


def _sparse_embedding(device: str) -> Step:
    table, rows = random(device, 100, 16), torch.randint(100, (8, 24)).to(device)
    return lambda: torch.autograd.grad(functional.embedding(rows, table, sparse=True).sum(), table)


work("embedding with sparse gradients")(_sparse_embedding)
work("embedding_bag")(partial(embedding, operator=functional.embedding_bag, mode="sum"))


def _ctc(device: str, on_cpu: bool, dtype: torch.dtype) -> Step:
    x = random(device, 50, 4, 20)
    targets = torch.randint(1, 20, (48,), dtype=dtype).to("cpu" if on_cpu else device)
    # (cuDNN's loss is divided by lengths where they are.)
    lengths = [torch.full((4,), n, dtype=dtype).to(device if on_cpu else "cpu") for n in (50, 12)]
    return with_backward(
        lambda: functional.ctc_loss(x.log_softmax(2), targets, *lengths, zero_infinity=True), x
    )


# PyTorch's composition asks twice whether cuDNN takes the loss, and brings lengths to the host each
# time; ours asks once.
_LENGTHS = ("Memcpy DtoH (Device -> Pageable)",)
work("ctc_loss of cuDNN", spares=_LENGTHS)(partial(_ctc, on_cpu=True, dtype=torch.int32))
work("ctc_loss", spares=_LENGTHS)(partial(_ctc, on_cpu=False, dtype=torch.int64))


# -- images and distances


def _grid_sample(device: str, **options: Any) -> Step:
    x, grid = random(device, 2, 3, 16, 16), random(device, 2, 8, 8, 2)
    return with_backward(lambda: functional.grid_sample(x, grid, **options), x, grid)


work("grid_sample of cuDNN")(partial(_grid_sample, align_corners=True))
work("grid_sample")(partial(_grid_sample, align_corners=False))
list_operator("cdist", torch.cdist, (40, 16), (36, 16))
list_operator("cdist p=1", torch.cdist, (40, 16), (36, 16), p=1.0)
list_operator("max_pool2d", functional.max_pool2d, (2, 8, 16, 16), kernel_size=2)
list_operator("adaptive_avg_pool2d", functional.adaptive_avg_pool2d, (2, 8, 16, 16), output_size=1)
list_operator(
    "interpolate", functional.interpolate, (2, 8, 16, 16), scale_factor=2, mode="bilinear"
)
for _dim in (0, 1):
    list_operator(
        f"_weight_norm {_dim}", torch._weight_norm, (32, 24), ((32, 1), (1, 24))[_dim], dim=_dim
    )
