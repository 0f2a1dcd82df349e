"""Owns: programs with scaled dot-product attention: implementations, masks, dtypes, shapes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..inputs import loss_of, needs_kernel, normal
from ..registry import Results, Skipped, program

_NO_KERNEL = ("No available kernel", "No viable backend")


def _attend(
    device: str,
    dtype: torch.dtype,
    *,
    heads: int = 4,
    kv_heads: int | None = None,
    queries: int = 24,
    keys: int = 24,
    size: int = 32,
    value_size: int | None = None,
    prefix: str = "",
    **how: Any,
) -> Results:
    """The output and the gradients of one call."""
    groups = kv_heads or heads
    q = normal(device, 2, heads, queries, size, seed=1, dtype=dtype, grad=True)
    k = normal(device, 2, groups, keys, size, seed=2, dtype=dtype, grad=True)
    v = normal(device, 2, groups, keys, value_size or size, seed=3, dtype=dtype, grad=True)
    mask = how.get("attn_mask")
    output = F.scaled_dot_product_attention(q, k, v, **how)
    loss_of(output).backward()
    leaves = {"q": q, "k": k, "v": v}
    if isinstance(mask, Tensor) and mask.requires_grad:
        leaves["mask"] = mask
    results: Results = {f"{prefix}output": output.detach()}
    for name, leaf in leaves.items():
        results[f"{prefix}grad of {name}"] = "none" if leaf.grad is None else leaf.grad
    return results


_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@program
def by_default(device: str) -> Results:
    """What is chosen where nothing is said, in each dtype, with and without gradients."""
    results: Results = {}
    for dtype in (*_DTYPES, torch.float64):
        for causal in (False, True):
            results |= _attend(device, dtype, is_causal=causal, prefix=f"{dtype} {causal}: ")
        q = normal(device, 2, 4, 24, 32, dtype=dtype)
        results[f"{dtype} no gradients"] = F.scaled_dot_product_attention(q, q, q)
    return results


def _with_only(device: str, backend: SDPBackend, dtypes: tuple[torch.dtype, ...]) -> Results:
    results: Results = {}
    with sdpa_kernel(backend), needs_kernel(f"attention by {backend.name}", *_NO_KERNEL):
        for dtype in dtypes:
            for causal in (False, True):
                prefix = f"{dtype} {causal}: "
                results |= _attend(device, dtype, is_causal=causal, size=64, prefix=prefix)
            results |= _attend(device, dtype, scale=0.3, size=64, prefix=f"{dtype} scaled: ")
    return results


@program
def math_alone(device: str) -> Results:
    """The composition."""
    return _with_only(device, SDPBackend.MATH, (*_DTYPES, torch.float64))


@program
def flash_alone(device: str) -> Results:
    """Flash attention."""
    return _with_only(device, SDPBackend.FLASH_ATTENTION, (torch.float16, torch.bfloat16))


@program
def efficient_alone(device: str) -> Results:
    """Memory-efficient attention, with masks too."""
    results = _with_only(device, SDPBackend.EFFICIENT_ATTENTION, _DTYPES)
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        mask = normal(device, 2, 4, 24, 24, seed=8)
        results |= _attend(device, torch.float32, attn_mask=mask, prefix="mask: ")
    return results


@program
def cudnn_alone(device: str) -> Results:
    """Attention by cuDNN."""
    return _with_only(device, SDPBackend.CUDNN_ATTENTION, (torch.float16, torch.bfloat16))


@program
def order_of_backends(device: str) -> Results:
    """Several implementations allowed, and an order among them."""
    results: Results = {}
    orders = {
        "efficient, flash": [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION],
        "flash, math": [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH],
        "math, flash": [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION],
    }
    for name, order in orders.items():
        with sdpa_kernel(order, set_priority=True), needs_kernel(name, *_NO_KERNEL):
            results |= _attend(device, torch.bfloat16, size=64, prefix=f"{name}: ")
    return results


@program
def nothing_fits(device: str) -> Results:
    """The error where the one implementation that is allowed cannot run the call."""
    q = normal(device, 1, 2, 8, 16, dtype=torch.float64)
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            F.scaled_dot_product_attention(q, q, q)
    except RuntimeError as error:
        return {"error": str(error)}
    raise Skipped("flash attention takes float64 on this device")


@program
def masks(device: str) -> Results:
    """Masks of bools and of numbers, whole and broadcast, and rows in which nothing is seen."""
    results: Results = {}
    seen = normal(device, 24, 24, seed=7) > -0.5
    hidden = seen.clone()
    hidden[3] = False
    for dtype in _DTYPES:
        added = normal(device, 2, 4, 24, 24, seed=8, dtype=dtype)
        cases = {
            "bools": seen,
            "a hidden row": hidden,
            "per batch": (normal(device, 2, 1, 1, 24, seed=9) > -0.5),
            "numbers": added,
            "numbers, broadcast": added[:1, :1],
            "learned": added.clone().requires_grad_(),
        }
        for name, mask in cases.items():
            results |= _attend(device, dtype, attn_mask=mask, prefix=f"{dtype} {name}: ")
    return results


@program
def head_sizes(device: str) -> Results:
    """Heads of sizes that kernels like and of others, and values of another size than keys."""
    results: Results = {}
    for dtype in (torch.float32, torch.bfloat16):
        for size in (1, 8, 12, 40, 80, 96, 128, 256):
            results |= _attend(device, dtype, size=size, prefix=f"{dtype} {size}: ")
        results |= _attend(device, dtype, size=32, value_size=16, prefix=f"{dtype} values: ")
    return results


@program
def lengths(device: str) -> Results:
    """One query, many keys, lengths of all sorts, nothing at all."""
    results: Results = {}
    for dtype in (torch.float32, torch.float16):
        for queries, keys in ((1, 130), (130, 1), (7, 129), (257, 257), (0, 5)):
            how: dict[str, Any] = {"queries": queries, "keys": keys}
            results |= _attend(device, dtype, prefix=f"{dtype} {queries} {keys}: ", **how)
        results |= _attend(device, dtype, queries=9, keys=30, is_causal=True, prefix=f"{dtype}: ")
    return results


@program
def grouped_queries(device: str) -> Results:
    """Fewer heads of keys than of queries."""
    results: Results = {}
    for dtype in _DTYPES:
        for groups in (1, 2):
            how: dict[str, Any] = {"kv_heads": groups, "enable_gqa": True, "is_causal": True}
            results |= _attend(device, dtype, size=64, prefix=f"{dtype} {groups}: ", **how)
    return results


@program
def attention_dropout(device: str) -> Results:
    """Dropout of attention weights under a seed, and the numbers that are drawn afterwards."""
    results: Results = {}
    for dtype in _DTYPES:
        torch.manual_seed(31)
        for name in ("first", "second"):
            results |= _attend(device, dtype, dropout_p=0.3, prefix=f"{dtype} {name}: ")
            results[f"{dtype} {name}: drawn afterwards"] = torch.rand(4, device=device)
    return results


@program
def layouts(device: str) -> Results:
    """Heads as projections leave them (transposed), and tensors that only broadcast."""
    results: Results = {}
    for dtype in _DTYPES:
        flat = normal(device, 2, 24, 3 * 4 * 32, dtype=dtype, grad=True)
        q, k, v = flat.view(2, 24, 3, 4, 32).permute(2, 0, 3, 1, 4)
        output = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        loss_of(output).backward()
        assert flat.grad is not None
        results |= {f"{dtype}": output.detach(), f"{dtype} grad": flat.grad}
        one = normal(device, 1, 4, 24, 32, seed=4, dtype=dtype).expand(2, -1, -1, -1)
        results[f"{dtype} expanded"] = F.scaled_dot_product_attention(one, one, v.detach())
        results[f"{dtype} 3d"] = F.scaled_dot_product_attention(one[0], one[0], one[0])
    return results
