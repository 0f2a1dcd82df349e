"""Owns: tests of flagos tensors in other processes, shared as CUDA shares its own. The same program
runs on CUDA used natively, whose facts are what flagos' must be.
"""

from __future__ import annotations

import multiprocessing.reduction as pickling
from typing import Any

import gpu_child
import pytest
import torch

Facts = dict[str, Any]


@pytest.fixture(scope="module")
def facts(said: Any) -> tuple[Facts, Facts]:
    """What `gpu_child.exchange` gives natively and on flagos."""
    native, flagos = gpu_child.on_both(said, "gpu_child", "exchange(device)")
    if "unanswered" in native:
        pytest.skip(f"CUDA itself shares no memory here: {native['unanswered']}")
    assert "unanswered" not in flagos, flagos["unanswered"]
    return native, flagos


def test_every_fact_is_cudas(facts: tuple[Facts, Facts]) -> None:
    native, flagos = facts
    assert native["exit code"] == 0
    assert {key: flagos[key] for key in native if flagos[key] != native[key]} == {}
    assert flagos.keys() == native.keys()


def test_kinds_of_tensors_arrive_as_they_are(facts: tuple[Facts, Facts]) -> None:
    for arrived, sent in (of["kinds"] for of in facts):
        assert arrived == sent
        assert [kind[0] for kind in sent[-3:]] == ["Tensor", "Parameter", "Parameter"]
        assert [kind[2] for kind in sent[-3:]] == [True, True, False], "requires_grad"
        assert all(kind[1] for kind in arrived), "on the device that it was sent from"


def test_the_memory_is_one(facts: tuple[Facts, Facts]) -> None:
    _, flagos = facts
    assert flagos["views share a storage there"] == [True, True, True]
    assert flagos["after adding there"] == [[1, 2, 4, 5, 5, 6], [4, 5]]
    assert flagos["after filling here"] == [7] * 6


def test_a_tensor_of_the_other_process_outlives_its_variable_there(
    facts: tuple[Facts, Facts],
) -> None:
    _, flagos = facts
    assert flagos["made there"] == [True, [4, 4, 4], [3, 3, 3]]


def test_the_senders_memory_stays_until_the_receiver_lets_go(facts: tuple[Facts, Facts]) -> None:
    _, flagos = facts
    assert flagos["memory until the receiver lets go"] == [64 << 20, 0]


def test_a_shared_model_is_trained_by_the_other_process(facts: tuple[Facts, Facts]) -> None:
    _, flagos = facts
    assert flagos["trained there"] == [[1, 1], [1, 1]]


def test_sharing_it_is_no_work(facts: tuple[Facts, Facts]) -> None:
    _, flagos = facts
    assert flagos["is shared"] == [True, True]
    assert flagos["share_memory_"] == [True, True]


def test_what_cannot_be_sent_is_refused_in_cudas_words(facts: tuple[Facts, Facts]) -> None:
    for of in facts:
        assert "received from another process" in of["sending it on"]
        assert "non-leaf tensor" in of["a result of operators"]


def test_an_event_of_cudas_stands_behind_flagos_work(facts: tuple[Facts, Facts]) -> None:
    native, flagos = facts
    of_native, of_flagos = (of["an event of CUDA's"] for of in (native, flagos))
    if isinstance(of_native, str):
        pytest.skip(f"CUDA itself shares no event here: {of_native}")
    assert of_flagos == [9, 9, 9]


def test_events_of_flagos_say_that_they_belong_to_their_process() -> None:
    event = torch.flagos.Event(interprocess=True)
    event.record()
    with pytest.raises(NotImplementedError, match="ipc is not supported"):
        event.ipc_handle()
    with pytest.raises(NotImplementedError, match="belongs to the process"):
        pickling.ForkingPickler.dumps(event)


def test_workers_of_a_data_loader_make_tensors_on_the_device(said: Any) -> None:
    native, flagos = gpu_child.on_both(said, "gpu_child", "loader(device)")
    assert flagos == native
    assert native == [[True, [[0, 0], [1, 1]]], [True, [[2, 2], [3, 3]]]]


FORKED = """
import torch_fl
x = torch.arange(4.0, device="flagos")
here = torch.multiprocessing.get_context("fork")

def use(queue):
    try:
        queue.put(str(torch.ones(4, device="flagos").tolist()))
    except RuntimeError as error:
        queue.put(str(error))

queue = here.Queue()
process = here.Process(target=use, args=(queue,))
process.start()
text = queue.get(timeout=60)
process.join()
print(json.dumps([text, (x + 1).tolist()]))
"""


def test_a_fork_is_refused_and_the_parent_goes_on(said: Any) -> None:
    text, values = said(FORKED)
    assert "Cannot re-initialize flagos in forked subprocess" in text
    assert "'spawn' start method" in text
    assert values == [1, 2, 3, 4]
