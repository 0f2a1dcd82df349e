"""Owns: a training step and greedy decoding of a model shaped as Qwen3-0.6B.

transformers' model is used where transformers can be imported, else the plain one; a run says
which it was. Neither is compiled: transformers would compile its decoding on CUDA alone.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
import torch.nn.functional as F
from _qwen3 import ROTARY_BASE, Cache, Qwen3, greedy
from _workloads import Workload, trained
from torch import Tensor

PLAIN = "plain PyTorch model (`_qwen3.py`)"


def transformers() -> Any:
    """The package, where it is there and can import the model; else None."""
    try:
        package = importlib.import_module("transformers")
        _ = package.Qwen3ForCausalLM  # imported now: its own requirements may be missing
    except ImportError:
        return None
    return package


def prepare() -> None:
    """Imports transformers, which takes longer than all else before the first step."""
    transformers()


def _in_bfloat16(device: torch.device, make: Any) -> Any:
    """A model made on the device in the dtype it keeps: nothing wider counts in the peak."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with device:
            return make()
    finally:
        torch.set_default_dtype(before)


def _of(package: Any, device: torch.device, size: dict[str, Any], length: int) -> tuple[Any, str]:
    config = package.Qwen3Config(
        vocab_size=size["vocabulary"],
        hidden_size=size["hidden"],
        intermediate_size=size["intermediate"],
        num_hidden_layers=size["layers"],
        num_attention_heads=size["heads"],
        num_key_value_heads=size["kv_heads"],
        head_dim=size["head_dim"],
        max_position_embeddings=length,
        rope_theta=ROTARY_BASE,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
        # Random weights come upon such a token by chance, and would end a text there.
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    model = _in_bfloat16(device, lambda: package.Qwen3ForCausalLM(config))
    return model, f"transformers {package.__version__}, Qwen3ForCausalLM"


def train(device: torch.device, size: dict[str, Any]) -> Workload:
    """Next-token loss, AdamW as PyTorch's default has it."""
    model: Any
    package = transformers()
    if package is not None:
        model, note = _of(package, device, size, size["length"])
        model.config.use_cache = False
    else:
        model, note = _in_bfloat16(device, lambda: Qwen3(size)), PLAIN
    model.train()
    shape = (size["batch"], size["length"])
    tokens = torch.randint(size["vocabulary"], shape, device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def loss_of() -> Tensor:
        if package is not None:
            found: Tensor = model(input_ids=tokens, labels=tokens).loss
            return found
        logits = model(tokens)[:, :-1].float()
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss

    return trained(step, note)


def trace(logits: Tensor) -> float:
    """A number that shows what the model makes of a whole text: random weights repeat one token,
    so that the tokens themselves would show little."""
    return float(logits[0, -1].double().abs().sum().item())


def decode(device: torch.device, size: dict[str, Any]) -> Workload:
    """Greedy decoding of one sequence with a static cache; a step is a whole text."""
    count, length = size["tokens"], size["prompt"] + size["tokens"]
    last: list[Tensor] = []
    package = transformers()
    if package is not None:
        model, note = _of(package, device, size, length)
        prompt = torch.randint(size["vocabulary"], (1, size["prompt"]), device=device)
        options = {
            "attention_mask": torch.ones_like(prompt),
            "max_new_tokens": count,
            "min_new_tokens": count,
            "do_sample": False,
            "cache_implementation": "static",
            "disable_compile": True,
        }
        model.eval()

        def step() -> None:
            last[:] = [model.generate(prompt, **options)]

        def result() -> float:
            with torch.inference_mode():
                return trace(model(last[0]).logits)

    else:
        model, note = _in_bfloat16(device, lambda: Qwen3(size)).eval(), PLAIN
        prompt = torch.randint(size["vocabulary"], (1, size["prompt"]), device=device)
        cache = Cache(size, length, device)

        def step() -> None:
            last[:] = [torch.cat((prompt, greedy(model, prompt, count, cache)), 1)]

        def result() -> float:
            with torch.inference_mode():
                return trace(model(last[0]))

    return Workload(step, result, count, note, model=model, output=lambda: last[0])
