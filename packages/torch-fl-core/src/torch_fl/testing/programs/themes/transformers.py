"""Owns: programs with PyTorch's transformer modules, and with FlexAttention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from ..inputs import each, loss_of, needs_kernel, normal, on_device, trained
from ..registry import Results, program


@program
def multihead_attention(device: str) -> Results:
    """nn.MultiheadAttention in its forms."""
    x = normal(device, 3, 7, 16, grad=True)
    memory = normal(device, 3, 5, 16, seed=4)
    padding = torch.arange(7, device=device) >= torch.tensor([[7], [5], [2]], device=device)
    causal = nn.Transformer.generate_square_subsequent_mask(7, device=torch.device(device))
    plain = on_device(nn.MultiheadAttention(16, 4, batch_first=True), device)
    other = nn.MultiheadAttention(16, 4, kdim=12, vdim=10, add_bias_kv=True, add_zero_attn=True)
    odd = on_device(other, device)
    k, v = normal(device, 5, 3, 12, seed=5), normal(device, 5, 3, 10, seed=6)
    return each(
        {
            "weights": lambda: trained(plain, x, x, x),
            "weights of each head": lambda: trained(plain, x, x, x, average_attn_weights=False),
            "without weights": lambda: trained(plain, x, x, x, need_weights=False),
            "other keys": lambda: trained(plain, x, memory, memory, need_weights=False),
            "padding": lambda: trained(plain, x, x, x, key_padding_mask=padding),
            "causal": lambda: trained(plain, x, x, x, attn_mask=causal, need_weights=False),
            "other sizes": lambda: trained(odd, x.transpose(0, 1), k, v),
        }.items()
    )


@program
def attention_fast_path(device: str) -> Results:
    """nn.MultiheadAttention in evaluation without gradients, which takes a kernel of its own."""
    results: Results = {}
    padding = torch.arange(7, device=device) >= torch.tensor([[7], [5], [2]], device=device)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        attention = nn.MultiheadAttention(16, 4, batch_first=True)
        attention = on_device(attention, device).to(dtype).eval()
        x = normal(device, 3, 7, 16, dtype=dtype)
        with torch.inference_mode():
            for needed in (True, False):
                output, weights = attention(x, x, x, need_weights=needed, key_padding_mask=padding)
                results[f"{dtype} {needed}"] = output
                if weights is not None:
                    results[f"{dtype} weights"] = weights
    return results


def _encoder(device: str, dtype: torch.dtype = torch.float32, dropout: float = 0.0) -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout, activation="gelu", batch_first=True)
    return on_device(nn.TransformerEncoder(layer, 2), device).to(dtype)


@program
def encoder_training(device: str) -> Results:
    """nn.TransformerEncoder with dropout, causal, with padding."""
    encoder = _encoder(device, dropout=0.2)
    x = normal(device, 3, 7, 16, grad=True)
    padding = torch.arange(7, device=device) >= torch.tensor([[7], [5], [2]], device=device)
    causal = nn.Transformer.generate_square_subsequent_mask(7, device=torch.device(device))
    torch.manual_seed(9)
    results = trained(encoder, x, prefix="plain: ")
    results |= trained(encoder, x, mask=causal, is_causal=True, prefix="causal: ")
    return results | trained(encoder, x, src_key_padding_mask=padding, prefix="padding: ")


@program
def encoder_evaluation(device: str) -> Results:
    """nn.TransformerEncoder without gradients: its fast path, and with them."""
    results: Results = {}
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        encoder = _encoder(device, dtype).eval()
        x = normal(device, 3, 7, 16, dtype=dtype)
        with torch.no_grad():
            results[f"{dtype}"] = encoder(x)
        results[f"{dtype} with gradients"] = encoder(x).detach()
    return results


@program
def encoder_padding(device: str) -> Results:
    """nn.TransformerEncoder without gradients, with padding: through nested tensors."""
    results: Results = {}
    padding = torch.arange(7, device=device) >= torch.tensor([[7], [5], [2]], device=device)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        encoder = _encoder(device, dtype).eval()
        with torch.no_grad():
            x = normal(device, 3, 7, 16, dtype=dtype)
            results[f"{dtype}"] = encoder(x, src_key_padding_mask=padding)
    return results


@program
def decoder(device: str) -> Results:
    """The whole nn.Transformer, norm first."""
    model = nn.Transformer(16, 4, 1, 2, 32, 0.0, norm_first=True, batch_first=True)
    model = on_device(model, device)
    source, target = normal(device, 2, 6, 16, grad=True), normal(device, 2, 5, 16, seed=3)
    causal = model.generate_square_subsequent_mask(5, device=torch.device(device))
    return trained(model, source, target.requires_grad_(), tgt_mask=causal, tgt_is_causal=True)


def _biased(score: Tensor, b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
    return score + 0.1 * (q - kv) * (h + 1)


def _causal(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
    return q >= kv


def _flex(device: str, *, grad: bool) -> Results:
    mask = create_block_mask(_causal, None, None, 32, 32, device=device)
    results: Results = {}
    for dtype in (torch.float32, torch.float16):
        q = normal(device, 2, 4, 32, 16, seed=1, dtype=dtype, grad=grad)
        k, v = (normal(device, 2, 2, 32, 16, seed=s, dtype=dtype, grad=grad) for s in (2, 3))
        output: Any = flex_attention(q, k, v, score_mod=_biased, block_mask=mask, enable_gqa=True)
        results[f"{dtype}"] = output.detach()
        if not grad:
            continue
        loss_of(output).backward()
        for name, leaf in {"q": q, "k": k, "v": v}.items():
            assert leaf.grad is not None
            results[f"{dtype} grad of {name}"] = leaf.grad
    return results


@program
def flex(device: str) -> Results:
    """FlexAttention, not compiled: a changed score, a block mask, grouped heads."""
    return _flex(device, grad=False)


@program(accelerator=True)
def variable_lengths(device: str) -> Results:
    """Attention over sequences that lie one after the other."""
    from torch.nn.attention.varlen import varlen_attn

    starts = torch.tensor([0, 7, 9, 24], dtype=torch.int32, device=device)
    q, k, v = (
        normal(device, 24, 4, 64, seed=seed, dtype=torch.bfloat16, grad=True) for seed in (1, 2, 3)
    )
    with needs_kernel("attention over variable lengths", "FlashAttention", "not supported"):
        output: Any = varlen_attn(q, k, v, starts, starts, 15, 15)
        loss_of(output).backward()
    results: Results = {"output": output.detach()}
    for name, leaf in {"q": q, "k": k, "v": v}.items():
        results[f"grad of {name}"] = "none" if leaf.grad is None else leaf.grad
    return results


@program(accelerator=True)
def flex_training(device: str) -> Results:
    """The same backward, which PyTorch does not have on the CPU."""
    return _flex(device, grad=True)
