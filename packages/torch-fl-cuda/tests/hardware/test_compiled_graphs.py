"""Owns: tests of torch.compile(mode="reduce-overhead") on flagos: PyTorch records compiled code as
CUDA graphs, replays them, and watches over what they overwrite, as it does natively.
"""

from __future__ import annotations

from typing import Any

import gpu_child

OVERWRITTEN = (
    "RuntimeError: Error: accessing tensor output of CUDAGraphs that has been overwritten by a "
    "subsequent run."
)


def on_both(said: Any, call: str) -> tuple[Any, Any]:
    return gpu_child.on_both(said, "compiled_steps", call)


def lives_on_both(said: Any, call: str) -> tuple[Any, Any]:
    return gpu_child.on_both(said, "compiled_results", call)


# -- results


def test_inference_is_eagers_and_replays_one_graph_for_each_call(said: Any) -> None:
    native, flagos = on_both(said, "forward(device)")
    assert native["replays"][-3:] == [1, 1, 1], "PyTorch itself"
    assert flagos["replays"] == native["replays"]
    assert flagos["skips"] == native["skips"] == 0
    assert not flagos["moved"], "results are where the graph writes them"
    assert max(native["apart"], flagos["apart"]) < 1e-4


def test_training_is_eagers_and_replays_two_graphs_for_each_step(said: Any) -> None:
    native, flagos = on_both(said, "training(device)")
    assert native["compiled"]["replays"][-3:] == [2, 2, 2], "PyTorch itself"
    assert set(flagos["eager"]["replays"]) == {0}
    assert flagos["compiled"]["replays"] == native["compiled"]["replays"]
    assert flagos["skips"] == native["skips"] == 0
    assert max(native["apart"], flagos["apart"]) < 1e-4
    first, *_, last = flagos["compiled"]["losses"]
    assert last < first, "it learns"
    pairs = zip(flagos["compiled"]["losses"], flagos["eager"]["losses"], strict=True)
    assert max(abs(one - other) for one, other in pairs) < 1e-4


def test_each_replay_draws_other_numbers_which_are_cudas(said: Any) -> None:
    native, flagos = on_both(said, "drawn(device)")
    assert flagos == native
    assert len(set(flagos)) == 6


# -- how long results live


def test_reading_what_a_later_run_overwrote_is_pytorchs_own_error(said: Any) -> None:
    native, flagos = lives_on_both(said, "overwritten(device)")
    assert native["an operator"] == [OVERWRITTEN, OVERWRITTEN], "PyTorch itself"
    assert native["a view, by an operator"] == [OVERWRITTEN, OVERWRITTEN]
    assert native["a copy"] == ["was read", "was read"]
    assert flagos == native


def test_in_the_steady_state_a_result_is_the_next_ones_memory(said: Any) -> None:
    native, flagos = lives_on_both(said, "overwritten_silently(device)")
    assert native[-1], "PyTorch itself"
    assert flagos == native


def test_results_stay_while_their_backward_passes_are_to_come(said: Any) -> None:
    native, flagos = lives_on_both(said, "generations(device, marked=False)")
    assert native == ["right"] * 5, "PyTorch itself"
    assert flagos == native


def test_a_marked_step_may_overwrite_results_of_the_last(said: Any) -> None:
    native, flagos = lives_on_both(said, "generations(device, marked=True)")
    assert native[-1] == "right", "PyTorch itself"
    assert OVERWRITTEN in native
    assert flagos == native


def test_two_hundred_calls_need_no_more_memory(said: Any) -> None:
    native, flagos = lives_on_both(said, "growth(device)")
    assert native == {"inference": [0, 0, 0], "training": [0, 0, 0]}, "PyTorch itself"
    assert flagos == native


# -- what is not recorded


def test_what_is_not_recorded_is_what_is_not_recorded_natively(said: Any) -> None:
    native, flagos = on_both(said, "reasons(device)")
    assert native["nothing"] == [0, 1], "PyTorch itself"
    assert native["writes to an argument"][0] > 0
    assert flagos == native


def test_a_checkpoint_with_random_numbers_is_recorded_too(said: Any) -> None:
    native, flagos = on_both(said, "checkpointed(device)")
    for name, numbers in native.items():
        assert numbers["the same numbers"] == [True] * 5, "PyTorch itself"
        assert numbers["replays"][-1] == [1, 1]
        assert flagos[name]["the same numbers"] == [True] * 5
        assert flagos[name]["skips"] == numbers["skips"]
        # (In how many pieces is PyTorch's choice, by what it knows of the operators between.)
        assert min(flagos[name]["replays"][-1]) >= 1
