"""Owns: tests of torch.flagos.graph and its kin: work recorded once and replayed, as CUDA does it.
What a whole process depends on runs in a child natively and in one on flagos (graphed_steps.py).
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import gpu_child
import pytest
import torch

Tensor = torch.Tensor

LARGE = 16 << 20  # elements: 64 MiB
BYTES = 4 * LARGE


def _reserved() -> int:
    gc.collect()
    torch.flagos.synchronize()
    torch.flagos.empty_cache()
    return torch.flagos.memory_reserved()


def _record(x: Tensor, pool: Any = None) -> tuple[Any, Tensor]:
    """A graph of twice the sum of `x`, which needs as much memory as `x` has while it works."""
    graph = torch.flagos.CUDAGraph()
    with torch.flagos.graph(graph, pool=pool):
        total = (x * 2).sum()
    return graph, total


# -- replaying


def test_replaying_reads_and_writes_the_same_memory() -> None:
    x, seen = torch.ones(100, device="flagos"), torch.zeros((), device="flagos")
    x.sum()
    graph = torch.flagos.CUDAGraph()
    with torch.flagos.graph(graph):
        total = x.sum()
        seen.add_(1)
    torch.flagos.synchronize()
    assert seen.item() == 0, "recording does nothing"
    address = total.data_ptr()
    for value in (3.0, 5.0):
        x.fill_(value)
        graph.replay()
        assert total.item() == 100 * value
    assert (seen.item(), total.data_ptr()) == (2, address)


def test_the_stream_is_capturing_by_either_name() -> None:
    x, side = torch.ones(4, device="flagos"), torch.flagos.Stream()
    x + 1
    assert not torch.flagos.is_current_stream_capturing()
    graph = torch.flagos.CUDAGraph()
    with torch.flagos.graph(graph, stream=side, capture_error_mode="thread_local"):
        assert torch.flagos.current_stream() == side
        assert torch.flagos.is_current_stream_capturing()
        assert torch.cuda.is_current_stream_capturing()
        y = x + 1
    assert not torch.flagos.is_current_stream_capturing()
    assert torch.flagos.current_stream() != side
    graph.replay()
    assert y.tolist() == [2.0] * 4


def test_a_graph_of_cudas_own_records_flagos_work() -> None:
    x = torch.ones(4, device="flagos")
    x + 1
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x + 1
    x.fill_(4)
    graph.replay()
    assert y.tolist() == [5.0] * 4


def test_a_mode_that_there_is_not_is_refused() -> None:
    with (
        torch.flagos.stream(torch.flagos.current_stream()),  # CUDA's leaves its own stream current
        pytest.raises(RuntimeError, match="capture error mode"),
        torch.flagos.graph(torch.flagos.CUDAGraph(), capture_error_mode="sometimes"),
    ):
        pass
    assert not torch.flagos.is_current_stream_capturing()


def test_a_graph_can_be_written_down(tmp_path: Path) -> None:
    x = torch.ones(4, device="flagos")
    x + 1
    graph = torch.flagos.CUDAGraph(keep_graph=True)  # what can be written down is let go otherwise
    graph.enable_debug_mode()
    with torch.flagos.graph(graph):
        y = x + 1
    graph.replay()
    assert y.tolist() == [2.0] * 4
    graph.debug_dump(str(tmp_path / "graph.dot"))
    assert "digraph" in (tmp_path / "graph.dot").read_text()


# -- memory


def test_graphs_share_a_pool_or_have_their_own() -> None:
    x = torch.ones(LARGE, device="flagos")
    (x * 2).sum()
    level = _reserved()
    handle = torch.flagos.graph_pool_handle()
    shared = [_record(x, handle), _record(x, handle)]
    assert [graph.pool() for graph, _ in shared] == [handle, handle]
    together = _reserved() - level
    apart = [_record(x), _record(x)]
    assert apart[0][0].pool() != apart[1][0].pool()
    by_themselves = _reserved() - level - together
    assert BYTES <= together < 2 * BYTES <= by_themselves
    x.fill_(3)
    for graph, total in shared + apart:
        graph.replay()
        assert total.item() == 6.0 * LARGE


def test_memory_of_a_graph_is_given_back_with_it() -> None:
    x = torch.ones(LARGE, device="flagos")
    (x * 2).sum()
    level, allocated = _reserved(), torch.flagos.memory_allocated()
    graph, total = _record(x)
    del total
    assert _reserved() >= level + BYTES, "the pool waits for the next replay"
    graph.replay()
    del graph
    assert _reserved() == level
    assert torch.flagos.memory_allocated() == allocated


# -- training, beside CUDA used natively


def test_a_thousand_replays_are_a_thousand_steps(said: Any) -> None:
    native, flagos = gpu_child.on_both(said, "graphed_steps", "both_ways(device, 1000)")
    assert native["replayed"] == native["eager"], "PyTorch itself, bit for bit"
    assert flagos == native
    first, last = native["eager"]["losses"]
    assert last < first / 2, "it learns"


def test_a_step_with_dropout_is_cudas(said: Any) -> None:
    native, flagos = gpu_child.on_both(said, "graphed_steps", "with_dropout(device, 100)")
    assert flagos == native
    assert flagos["without"] != flagos["with"]


def test_a_module_whose_passes_are_graphs(said: Any) -> None:
    native, flagos = gpu_child.on_both(said, "graphed_steps", "graphed_module(device)")
    assert native["replayed"] == native["eager"], "PyTorch itself, bit for bit"
    assert flagos == native


def test_graphed_callables_refuse_a_cache_of_autocast() -> None:
    layer, x = torch.nn.Linear(4, 4).to("flagos"), torch.ones(2, 4, device="flagos")
    with (
        torch.autocast("flagos", torch.bfloat16),
        pytest.raises(RuntimeError, match="cache_enabled=False"),
    ):
        torch.flagos.make_graphed_callables(layer, (x,))


def test_functions_as_graphs_with_their_gradients() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return (x * y).tanh()

    def leaves() -> list[Tensor]:
        torch.manual_seed(3)
        return [torch.randn(8, device="flagos", requires_grad=True) for _ in range(2)]

    graphed = torch.flagos.make_graphed_callables(function, tuple(leaves()))
    results = []
    for call in (function, graphed):
        inputs = leaves()
        out = call(*inputs)
        (out * 3).sum().backward()
        results.append([out.detach().clone(), *(leaf.grad.clone() for leaf in inputs)])
    for eager, replayed in zip(*results, strict=True):
        assert torch.equal(eager, replayed)


# -- random numbers


@pytest.mark.parametrize("own_generator", [False, True])
def test_each_replay_draws_other_numbers_which_are_cudas(said: Any, own_generator: bool) -> None:
    call = f"drawn(device, own_generator={own_generator})"
    native, flagos = gpu_child.on_both(said, "graphed_steps", call)
    assert flagos == native
    assert len(set(flagos)) == 6


# -- what cannot be recorded


def test_what_cannot_be_recorded_is_refused_in_cudas_words(said: Any) -> None:
    native, flagos = gpu_child.on_both(said, "graphed_steps", "refusals(device)")
    assert flagos == native
    for name in ("item", "cpu"):
        assert any("captur" in text for text in flagos[name]), flagos[name]
        assert flagos[f"after {name}"] == [False, [2.0] * 4], "the process goes on"


def test_the_mode_says_whose_calls_are_refused(said: Any) -> None:
    native, flagos = gpu_child.on_both(said, "graphed_steps", "modes(device)")
    assert flagos == native
    assert flagos["thread_local"] == flagos["relaxed"] == []
    assert "the capture" in flagos["global"]


# -- the accelerator's name for it


@pytest.mark.skipif(
    not hasattr(torch.accelerator, "Graph"), reason="torch.accelerator.Graph came with torch 2.12"
)
def test_a_graph_of_the_accelerator() -> None:
    x, y = torch.zeros(4, device="flagos"), torch.ones(4, device="flagos")
    y.add_(1)
    handle = torch.flagos.graph_pool_handle()
    graph = torch.accelerator.Graph(pool=handle, capture_error_mode="thread_local")
    with torch.flagos.Stream(), graph:
        x.add_(y)
    torch.flagos.synchronize()
    assert x.tolist() == [0.0] * 4, "recording does nothing"
    for _ in range(3):
        graph.replay()
    assert x.tolist() == [6.0] * 4
    assert graph.pool() == handle
