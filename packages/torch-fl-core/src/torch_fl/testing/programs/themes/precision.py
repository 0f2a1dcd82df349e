"""Owns: programs about dtypes, and switches that trade precision for speed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..inputs import (
    gradients_of,
    integers,
    loss_of,
    needs_kernel,
    normal,
    on_device,
    trained,
)
from ..registry import Results, program

_LARGE = (96, 1024, 80)


@contextlib.contextmanager
def _switched(owner: object, **values: object) -> Iterator[None]:
    before = {name: getattr(owner, name) for name in values}
    try:
        for name, value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def _product(device: str, dtype: torch.dtype) -> Results:
    m, k, n = _LARGE
    a = normal(device, m, k, dtype=dtype, grad=True)
    b = normal(device, k, n, seed=2, dtype=dtype, grad=True)
    c = a @ b
    loss_of(c).backward()
    assert a.grad is not None
    assert b.grad is not None
    return {"product": c.detach(), "grad a": a.grad, "grad b": b.grad}


@program
def reduced_float32(device: str) -> Results:
    """Products in float32 at each precision that can be asked for."""
    results: Results = {}
    before = torch.get_float32_matmul_precision()
    try:
        for precision in ("highest", "high", "medium"):
            torch.set_float32_matmul_precision(precision)
            made = _product(device, torch.float32)
            results |= {f"{precision} {name}": value for name, value in made.items()}
            batch = normal(device, 3, 64, 256)
            results[f"{precision} batch"] = batch @ batch.mT
            layer = on_device(nn.Linear(256, 64), device)
            results |= trained(layer, batch, prefix=f"{precision} layer: ")
    finally:
        torch.set_float32_matmul_precision(before)
    for allowed in (False, True):
        with _switched(torch.backends.cuda.matmul, allow_tf32=allowed):
            made = _product(device, torch.float32)
            results |= {f"TF32 {allowed} {name}": value for name, value in made.items()}
    return results


@program
def reduced_sums(device: str) -> Results:
    """Products in float16 and bfloat16, with and without sums in these."""
    results: Results = {}
    for dtype, switch in (
        (torch.float16, "allow_fp16_reduced_precision_reduction"),
        (torch.bfloat16, "allow_bf16_reduced_precision_reduction"),
    ):
        for allowed in (False, True):
            with _switched(torch.backends.cuda.matmul, **{switch: allowed}):
                made = _product(device, dtype)
                results |= {f"{dtype} {allowed} {name}": value for name, value in made.items()}
    return results


_NO_EIGHT_BITS = ("only supported", "requires compute capability", "not implemented")


@program
def scaled_products(device: str) -> Results:
    """Products of 8-bit floats with a scale for each factor."""
    a, b = _eight_bits(device)
    one, bias = torch.tensor(0.5, device=device), normal(device, 48, seed=3, dtype=torch.bfloat16)
    multiply = partial(torch._scaled_mm, a, b, out_dtype=torch.bfloat16)
    with needs_kernel("product of 8-bit floats", *_NO_EIGHT_BITS):
        return {
            "plain": multiply(scale_a=one, scale_b=one * 3),
            "bias": multiply(scale_a=one, scale_b=one, bias=bias),
            "fast": multiply(scale_a=one, scale_b=one, use_fast_accum=True),
        }


@program(accelerator=True)
def scaled_rows(device: str) -> Results:
    """Products of 8-bit floats with a scale for each row."""
    a, b = _eight_bits(device)
    rows, columns = normal(device, 32, 1).abs(), normal(device, 1, 48, seed=2).abs()
    with needs_kernel("product of 8-bit floats with scales for rows", *_NO_EIGHT_BITS):
        return {"product": torch._scaled_mm(a, b, rows, columns, out_dtype=torch.bfloat16)}


def _eight_bits(device: str) -> tuple[Tensor, Tensor]:
    """Factors of 32 by 64 and 64 by 48, the second one by columns."""
    a = normal(device, 32, 64).to(torch.float8_e4m3fn)
    return a, normal(device, 48, 64, seed=2).to(torch.float8_e4m3fn).t()


@program
def integer_products(device: str) -> Results:
    """Products of 8-bit integers, and fake quantization with gradients."""
    a, b = integers(device, 200, 32, 64) - 100, integers(device, 200, 64, 48, seed=2) - 100
    x = normal(device, 6, 9, grad=True)
    fake = torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 20)
    loss_of(fake).backward()
    assert x.grad is not None
    product = torch._int_mm(a.to(torch.int8), b.to(torch.int8))
    return {"product": product, "fake": fake.detach(), "grad": x.grad}


@program
def eight_bit_floats(device: str) -> Results:
    """Rounding to 8-bit floats and back, views, copies, joins."""
    x = normal(device, 9, 40, scale=20.0)
    results: Results = {}
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        small = x.to(dtype)
        results |= {f"{dtype}": small, f"{dtype} back": small.float()}
        results |= {
            f"{dtype} from half": x.half().to(dtype),
            f"{dtype} bits": small.view(torch.uint8),
        }
        results[f"{dtype} joined"] = torch.cat([small, small[:2]])
        results[f"{dtype} moved"] = small.t().contiguous()
    return results


@program
def conversions(device: str) -> Results:
    """Conversions between dtypes, and what arithmetic between dtypes gives."""
    x = normal(device, 40, scale=100.0).abs()
    dtypes = (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
        torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64,
    )  # fmt: skip
    results: Results = {}
    for one in dtypes:
        y = x.clamp(max=100).to(one)
        results[f"{one}"] = y
        for other in dtypes:
            if torch.complex64 in (one, other) and {torch.float16, torch.bfloat16} & {one, other}:
                continue  # half-precision complex numbers, which are experimental
            results[f"{one} {other}"] = y + torch.ones(40, device=device).to(other)
            results[f"{one} {other} number"] = y * torch.ones((), device=device).to(other)
        results[f"{one} scalar"] = y + 2.5
    return results


@program
def autocast_policies(device: str) -> Results:
    """The dtype that autocast gives each kind of operator, nested regions, the cache of casts."""
    x, y = normal(device, 8, 8), normal(device, 8, 8, seed=2)
    results: Results = {}
    for dtype in (torch.float16, torch.bfloat16):
        calls = _by_policy(x, y, dtype)
        with torch.autocast(device, dtype):
            results |= {f"{dtype} {name}": call() for name, call in calls.items()}
            with torch.autocast(device, enabled=False):
                results[f"{dtype} off"] = x @ y
            layer = on_device(nn.Linear(8, 8), device)
            layer(layer(x)).square().sum().backward()
        results |= gradients_of(layer, f"{dtype} ")
    with torch.autocast(device):
        results["by default"] = x @ y
    return results


def _by_policy(x: Tensor, y: Tensor, dtype: torch.dtype) -> dict[str, Callable[[], Tensor]]:
    classes = torch.arange(8, device=x.device)
    low, other = x.to(dtype), y.to(dtype)
    return {
        "mm": lambda: x @ y,
        "linear": lambda: F.linear(x, y),
        "softmax": lambda: low.softmax(1),
        "sum": lambda: low.sum(),
        "norm": lambda: low.norm(),
        "layer_norm": lambda: F.layer_norm(low, (8,)),
        "add": lambda: low + y,
        "cat": lambda: torch.cat([low, y]),
        "addcmul": lambda: torch.addcmul(x, low, y),
        "mse": lambda: F.mse_loss(low, other),
        "exp": lambda: low.exp(),
        "cross entropy": lambda: F.cross_entropy(low, classes),
        "gelu": lambda: F.gelu(low),
        "power": lambda: low.abs().pow(2.0),
        "cumsum": lambda: low.cumsum(0),
        "conv": lambda: F.conv1d(x[None], y[:, :, None]),
        "einsum": lambda: torch.einsum("ij,kj->ik", x, y),
        "cdist": lambda: torch.cdist(low, other),
        "attention": lambda: F.scaled_dot_product_attention(x[None], y[None], y[None]),
    }
