"""Owns: tests of what users are told when operands are on different devices or the wrong one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

Answer = Callable[..., Any]

MIXED = """
def told(call):
    try:
        call()
    except Exception as error:
        return {"type": type(error).__name__, "text": str(error)}

a, b = torch.ones(4, 4, device=D), torch.ones(4, 4)
ways = {
    "add": lambda: a + b, "add turned": lambda: b + a, "add_": lambda: a.add_(b),
    "mm": lambda: a @ b,
    "linear": lambda: torch.nn.functional.linear(a, b), "cat": lambda: torch.cat([a, b]),
    "where": lambda: torch.where(a > 0, a, b), "index": lambda: b[a.long()],
    "embedding": lambda: torch.nn.functional.embedding(a.long(), b),
    "bmm": lambda: torch.bmm(a[None], b[None]), "lerp": lambda: torch.lerp(a, b, b),
    "pin": lambda: a.pin_memory(), "pinned": lambda: torch.ones(2, device=D, pin_memory=True),
    "generator": lambda: torch.rand(2, device=D, generator=torch.Generator()),
    "a number": lambda: a + torch.tensor(2.0),
}
print(json.dumps({name: told(way) for name, way in ways.items()}))
"""


def _neutral(text: str) -> str:
    """An error's text without the name of the device, of a tensor's type or of a wrapper."""
    text = re.sub(r"wrapper_(CUDA|flagos)_\w+", "wrapper", text)
    text = re.sub(r"'[\w.]*Float(Type|Tensor)'", "a tensor", text)
    return re.sub(r"\b(cuda|flagos)\b", "device", text)


def test_mixed_operands_are_refused_in_cudas_words(said: Answer) -> None:
    sides = {
        "cuda": said("D = 'cuda'" + MIXED),
        "flagos": said("import torch_fl\nD = 'flagos'" + MIXED),
    }
    assert sides["cuda"].pop("a number") is None
    assert sides["flagos"].pop("a number") is None
    for way, cuda in sides["cuda"].items():
        assert cuda, f"CUDA itself must refuse {way}"
        flagos = sides["flagos"][way]
        assert flagos, way
        assert flagos["type"] == cuda["type"], way
        if way == "embedding":  # one operator here, a composition of others there
            assert "same device" in cuda["text"]
            for part in ("same device", "flagos:0", "cpu"):
                assert part in flagos["text"]
        else:
            assert _neutral(flagos["text"]) == _neutral(cuda["text"]), way


def test_flagos_and_cuda_do_not_mix_by_accident() -> None:
    ours, theirs = torch.ones(4, 4, device="flagos"), torch.ones(4, 4, device="cuda")
    for call in (lambda: ours + theirs, lambda: theirs @ ours, lambda: torch.cat([ours, theirs])):
        with pytest.raises(RuntimeError, match="same device") as caught:
            call()
        assert "flagos:0" in str(caught.value)
        assert "cuda:0" in str(caught.value)
    assert (ours + theirs.to("flagos")).sum().item() == 32
