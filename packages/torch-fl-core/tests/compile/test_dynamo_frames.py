"""Owns: what is held of _compat/compiler/dynamo_frames.py: which functions of torch_fl Dynamo looks
into."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch._dynamo import trace_rules, utils

import torch_fl

FLAGOS = "flagos"
PACKAGE = Path(torch_fl.__file__).parent


def test_torch_fl_is_followed_and_not_compiled_by_itself() -> None:
    not_followed = ("flagos/random.py", "flagos/sensors.py", "flagos/memory/")
    for path in PACKAGE.rglob("*.py"):
        inside = path.relative_to(PACKAGE).as_posix()
        alone = trace_rules.check_file(str(path)).skipped
        called = trace_rules.check_file(str(path), is_inlined_call=True).skipped
        assert alone == (not inside.startswith("testing/")), inside
        assert called == inside.startswith(not_followed), inside


def test_lists_of_others_can_still_be_added_to() -> None:
    """PyTorch itself adds a module now and then, and empties the caches of these two functions."""
    for lists, name in (("MOD_INLINELIST", "mod"), ("LEGACY_MOD_INLINELIST", "legacy_mod")):
        known = getattr(trace_rules, lists)
        ask = getattr(trace_rules, f"get_{name}_inlinelist")
        before = ask()
        known.add("torch.made_up")
        try:
            ask.cache_clear()
            assert len(ask() - before) == 1
        finally:
            known.remove("torch.made_up")
            ask.cache_clear()
        assert ask() == before


@pytest.mark.filterwarnings("error")
def test_calls_that_break_a_graph_are_not_compiled() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch.flagos.memory_allocated()
        torch.flagos.empty_cache()
        return y * 2

    torch._dynamo.reset()
    utils.clear_compilation_metrics()
    x = torch.ones(3, device=FLAGOS)
    assert torch.compile(function, backend="eager")(x).tolist() == [4, 4, 4]
    files = {metrics.co_filename for metrics in utils.get_compilation_metrics()}
    assert files == {__file__}


def test_contexts_are_followed() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.flagos.amp.autocast(dtype=torch.bfloat16):
            y = x @ x
        with torch.flagos.device(torch.flagos._get_device_index(x.device)):
            return y * 2

    x = torch.ones(3, 3, device=FLAGOS)
    result = torch.compile(function, backend="eager", fullgraph=True)(x)
    assert result.dtype == torch.bfloat16
    assert result.tolist() == [[6] * 3] * 3


def test_functions_of_generators_are_not_traced() -> None:
    """Nor from within PyTorch's own, which are not."""
    assert trace_rules.check_file(torch.flagos.random.__file__).skipped

    def seeded(x: torch.Tensor) -> torch.Tensor:
        state = torch.flagos.get_rng_state()
        torch.manual_seed(3)
        y = x + torch.rand_like(x)
        torch.flagos.set_rng_state(state)
        return y

    x = torch.ones(4, device=FLAGOS)
    before = torch.flagos.get_rng_state()
    expected = seeded(x)
    assert torch.equal(torch.compile(seeded, backend="eager")(x), expected)
    assert torch.equal(torch.flagos.get_rng_state(), before)
