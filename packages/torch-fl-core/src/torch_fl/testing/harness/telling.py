"""Owns: calls whose error or warnings are the result, in words that both sides share.

The device's text must be the CPU's with the device's own name in the place of "cpu": what says
"flagos:0" here and "cpu" there is equal, and what says "cpu" on both sides is not.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any, Final

import torch

from .cases import Case, NotASample

_CPU: Final = re.compile(r"\bcpu\b(:\d+)?")
_SHOWN_DEVICE: Final = re.compile(r", device='[^']*'")  # in the text of a tensor
_ADDRESS: Final = re.compile(r"\b0x[0-9a-f]+\b")
# Said once in a process when a tensor of such a layout is made, which boxing does again.
_SAID_ONCE: Final = re.compile(r"Sparse \w+ tensor support is in beta state")


class Raised(dict[str, Any]):
    """What is compared of a call that raised: its error, in words that both sides share."""


def told(case: Case, device: torch.device, *, own_texts: bool) -> Callable[..., Any]:
    """The case's function for a call on ``device``, with what is judged as its result.

    ``own_texts``: the target words its errors itself, so only the case's pattern is compared.
    """
    if case.judged == "error":
        return _error(case, device, own_texts)
    if case.judged == "alerts":
        return _alerts(case, device, own_texts)
    return case.function


def shared_words(text: str, device: torch.device) -> str:
    """``text`` with the device called "cpu", and the CPU "the other cpu" if that is another."""
    text = _SHOWN_DEVICE.sub("", _ADDRESS.sub("0x", text))
    if device.type == "cpu":
        return _CPU.sub("cpu", text)
    name = re.escape(device.type)
    text = _CPU.sub("the other cpu", text)
    text = re.sub(rf"\btorch\.{name}\.", "torch.", text)  # torch.flagos.FloatTensor
    return re.sub(rf"\b{name}\b(:\d+)?", "cpu", text)


def _error(case: Case, device: torch.device, own_texts: bool) -> Callable[..., Any]:
    def call(*positional: Any, **keyword: Any) -> dict[str, Any]:
        try:
            case.function(*positional, **keyword)
        except NotASample:
            raise
        except Exception as error:
            return _described(error, case, device, own_texts)
        raise NotASample("nothing was raised")

    return call


def _alerts(case: Case, device: torch.device, own_texts: bool) -> Callable[..., Any]:
    def call(*positional: Any, **keyword: Any) -> dict[str, Any]:
        outcome: dict[str, Any]
        always = torch.is_warn_always_enabled()
        torch.set_warn_always(True)  # or only the first side would give a warning
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    outcome = {"result": case.function(*positional, **keyword)}
                except NotASample:
                    raise
                except Exception as error:
                    outcome = _described(error, case, device, own_texts)
        finally:
            torch.set_warn_always(always)
        # Which, and not how often: that depends on how many operators a composite calls.
        texts = {shared_words(str(warning.message), device) for warning in caught}
        kept = sorted(text for text in texts if not _SAID_ONCE.search(text))
        outcome["warnings"] = bool(kept) if own_texts else kept
        return outcome

    return call


def _described(error: Exception, case: Case, device: torch.device, own_texts: bool) -> Raised:
    text = " ".join(str(error).split())
    words: object = shared_words(text, device)
    if own_texts:
        words = bool(re.search(case.pattern, text))
    return Raised(error=type(error).__name__, text=words)
