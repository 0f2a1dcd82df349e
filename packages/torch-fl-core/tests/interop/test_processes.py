"""flagos tensors in other processes: shared with spawn, a clear error with fork, never a hang."""

from __future__ import annotations

import gc
import multiprocessing.reduction as pickling
import os
from collections.abc import Callable, Iterator
from typing import Any

import other_process
import pytest
import torch
import torch.multiprocessing as mp
from children import output_of_child
from torch.multiprocessing import reductions
from torch.utils.data import DataLoader

from torch_fl._compat import multiprocessing as compat

FLAGOS = torch.device("flagos", 0)
TIMEOUT_S = 120.0
SPAWN = mp.get_context("spawn")

Ask = Callable[[Callable[[Any], Any], Any], Any]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Calls a function of `other_process` in another process and returns what it returns."""
    inbox, outbox = SPAWN.Queue(), SPAWN.Queue()
    process = SPAWN.Process(target=other_process.serve, args=(inbox, outbox))
    process.start()

    def asking(function: Callable[[Any], Any], argument: Any) -> Any:
        inbox.put((function, argument))
        return outbox.get(timeout=TIMEOUT_S)

    yield asking
    inbox.put(None)
    process.join(TIMEOUT_S)
    assert process.exitcode == 0


def numbers(count: int = 6) -> torch.Tensor:
    return torch.arange(float(count), device=FLAGOS)


def test_kinds_of_tensors_arrive_as_they_are(ask: Ask) -> None:
    sent = [
        numbers(),
        numbers().view(2, 3).t(),
        torch.tensor(3, device=FLAGOS),
        torch.ones(2, dtype=torch.bool, device=FLAGOS),
        torch.ones(2, dtype=torch.bfloat16, device=FLAGOS),
        torch.empty(0, 3, device=FLAGOS),
        torch.ones(2, device=FLAGOS, requires_grad=True),
        torch.nn.Parameter(numbers(2)),
        torch.nn.Parameter(torch.ones(2, dtype=torch.int64, device=FLAGOS), requires_grad=False),
        torch.complex(numbers(2), numbers(2)).conj(),
        torch.complex(numbers(2), numbers(2)).conj().imag,
        torch.eye(3, device=FLAGOS).to_sparse(),
        torch.eye(3, device=FLAGOS).to_sparse_csr(),
        torch.nested.nested_tensor([numbers(2), numbers(3)], layout=torch.jagged),
    ]
    assert ask(other_process.describe, sent) == other_process.describe(sent)


def test_of_an_empty_tensor_nothing_of_the_target_is_sent() -> None:
    # PyTorch names its device by an index alone, which in the other process means flagos.
    empty = torch.empty(0, 3, device=FLAGOS).t().requires_grad_()
    rebuild, arguments = reductions.reduce_tensor(empty)
    assert FLAGOS.index in arguments
    assert not any(isinstance(part, tuple) and "cpu" in str(part) for part in arguments)
    again = rebuild(*arguments)
    assert (again.device, again.stride(), again.requires_grad) == (FLAGOS, empty.stride(), True)


def test_the_memory_is_one(ask: Ask) -> None:
    tensor = numbers()
    views = [tensor, tensor[2:4], tensor.view(2, 3)]
    assert ask(other_process.share_storages, views) == [True, True, True]
    ask(other_process.add_one, [tensor, tensor[2:4]])
    assert tensor.tolist() == [1, 2, 4, 5, 5, 6]
    assert views[1].tolist() == [4, 5]
    assert views[1].data_ptr() == tensor.data_ptr() + 2 * tensor.element_size()


def test_writes_of_either_side_are_seen_by_the_other(ask: Ask) -> None:
    tensor = numbers(2)
    ask(other_process.keep, tensor)
    tensor.fill_(7)
    assert ask(other_process.take, None) == [7, 7]


def test_a_tensor_of_the_other_process_outlives_its_variable_there(ask: Ask) -> None:
    made = ask(other_process.make, 3.0)
    assert made.device == FLAGOS
    assert ask(other_process.make, 4.0).tolist() == [4, 4, 4]
    assert made.tolist() == [3, 3, 3]
    assert (made + 1).sum() == 12


def test_what_comes_back_is_what_was_sent(ask: Ask) -> None:
    tensor = numbers()
    again = ask(other_process.send_back, tensor)
    assert again.untyped_storage()._cdata == tensor.untyped_storage()._cdata
    again.add_(1)
    assert tensor[0] == 1


def test_storages_travel_too(ask: Ask) -> None:
    storage = torch.ones(3, dtype=torch.uint8, device=FLAGOS).untyped_storage()
    assert ask(other_process.storage_of, storage) == ("flagos:0", [1, 1, 1])


def test_a_shared_model_is_trained_by_the_other_process(ask: Ask) -> None:
    model = torch.nn.Linear(2, 2).to(FLAGOS)
    model.share_memory()
    before = model.weight.detach().clone()
    ask(other_process.step, model)
    torch.testing.assert_close(model.weight.detach(), before - 1)


def test_the_file_system_strategy(ask: Ask) -> None:
    before = mp.get_sharing_strategy()
    mp.set_sharing_strategy("file_system")
    try:
        ask(other_process.sharing_strategy, "file_system")
        tensor = numbers()
        ask(other_process.add_one, [tensor])
        assert tensor.tolist() == [1, 2, 3, 4, 5, 6]
        assert ask(other_process.make, 3.0).tolist() == [3, 3, 3]
    finally:
        ask(other_process.sharing_strategy, before)
        mp.set_sharing_strategy(before)


def test_shared_memory_leaves_the_pool_and_cannot_grow(ask: Ask) -> None:
    gc.collect()
    level = torch.flagos.memory_allocated()
    tensor = torch.zeros(1 << 20, device=FLAGOS)
    assert torch.flagos.memory_allocated() > level
    ask(other_process.keep, tensor)
    assert torch.flagos.memory_allocated() == level
    with pytest.raises(RuntimeError, match="not resizable"):
        tensor.resize_(1 << 21)
    with pytest.raises(RuntimeError, match="not resizable"):
        tensor.untyped_storage().resize_(1 << 23)
    tensor.resize_(5)  # what it holds already
    ask(other_process.take, None)


def test_flagos_tensors_are_always_shared_as_cudas() -> None:
    tensor = numbers()
    address = tensor.data_ptr()
    assert tensor.is_shared()
    assert tensor.untyped_storage().is_shared()
    assert tensor.share_memory_() is tensor
    assert tensor.data_ptr() == address
    assert not torch.ones(1).is_shared()


def test_what_has_a_history_is_refused_as_ever() -> None:
    with pytest.raises(RuntimeError, match="non-leaf tensor"):
        pickling.ForkingPickler.dumps(torch.ones(2, device=FLAGOS, requires_grad=True) * 2)


def test_events_are_refused_where_they_are_sent_and_where_they_are_awaited() -> None:
    event = torch.flagos.Event()
    with pytest.raises(NotImplementedError, match="belongs to the process"):
        pickling.ForkingPickler.dumps(event)
    queue = SPAWN.Queue()
    queue.put(event)
    with pytest.raises(NotImplementedError, match="belongs to the process"):
        queue.get(timeout=TIMEOUT_S)


def test_workers_of_a_data_loader_may_use_the_device_after_spawn() -> None:
    loader = DataLoader(
        other_process.OnFlagos(),
        batch_size=2,
        num_workers=1,
        multiprocessing_context="spawn",
        timeout=TIMEOUT_S,
    )
    batches = [*loader]
    assert [x.device for x in batches] == [FLAGOS, FLAGOS]
    assert batches[1].tolist() == [[2, 2], [3, 3]]


FORKED = """
    import sys
    import torch, torch_fl
    import torch.multiprocessing as mp
    from torch.utils.data import DataLoader, TensorDataset
    here = mp.get_context("fork")
    x = torch.arange(4.0, device="flagos")
    TIMEOUT_S = 60

    def put(queue):
        queue.put(x)

    def get(queue, outbox):
        try:
            queue.get()
            outbox.put("got it")
        except RuntimeError as error:
            outbox.put(str(error))

    def tell(name, ask):
        try:
            print(name, ask())
        except Exception as error:
            print(name, type(error).__name__, str(error).strip().splitlines()[-1])

    queue = here.Queue()
    process = here.Process(target=put, args=(queue,))
    process.start()
    tell("put", lambda: queue.get(timeout=TIMEOUT_S))
    process.join()

    queue, outbox = here.Queue(), here.Queue()
    process = here.Process(target=get, args=(queue, outbox))
    process.start()
    queue.put(x)
    tell("get", lambda: outbox.get(timeout=TIMEOUT_S))
    process.join()

    def send(end):
        try:
            end.send(x)
        except RuntimeError as error:
            end.send(str(error))

    ours, theirs = here.Pipe()
    process = here.Process(target=send, args=(theirs,))
    process.start()
    tell("pipe", lambda: ours.recv() if ours.poll(TIMEOUT_S) else "nothing")
    process.join()

    def batches(data):
        return [*DataLoader(data, num_workers=1, timeout=TIMEOUT_S, multiprocessing_context="fork")]

    tell("loader", lambda: batches(TensorDataset(x)))
    tell("cpu", lambda: len(batches(TensorDataset(x.cpu()))))
"""


def test_forked_processes_say_what_to_do_instead() -> None:
    lines = output_of_child(FORKED).splitlines()
    said = dict(line.split(" ", 1) for line in lines)
    assert said.pop("cpu") == "4"
    assert set(said) == {"put", "get", "pipe", "loader"}
    for name, text in said.items():
        assert "Cannot re-initialize flagos in forked subprocess" in text, name
        assert "'spawn' start method" in text, name


def test_two_devices_and_closed_memory() -> None:
    code = """
        import multiprocessing.reduction as pickling, pickle
        import torch, torch_fl
        x = torch.arange(3.0, device="flagos:1")
        y = pickle.loads(pickling.ForkingPickler.dumps(x))
        assert y.device == x.device, y.device
        y.add_(1)
        assert x.tolist() == [1, 2, 3]
        assert x.untyped_storage()._cdata == y.untyped_storage()._cdata
        torch.flagos.set_device(1)
        z = torch.ones(3, device="flagos:0")
        assert pickle.loads(pickling.ForkingPickler.dumps(z)).device.index == 0
    """
    output_of_child(code, FLAGOS_HOST_DEVICES="2", FLAGOS_HOST_GUARD="1")


def test_a_device_that_the_receiver_does_not_have() -> None:
    there = torch.flagos.device_count() + 3
    with pytest.raises(RuntimeError, match=f"Invalid flagos device index {there}"):
        compat._rebuild_tensor(torch.Tensor, False, False, False, there, lambda: torch.ones(2), ())


def test_the_process_is_another_one(ask: Ask) -> None:
    assert ask(other_process.process_id, None) != os.getpid()


def test_the_reducers_are_those_that_pytorch_uses() -> None:
    # Contract: sparse tensors go through the module's name, queues through the registry.
    registry: Any = pickling.ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    for kind in (torch.Tensor, torch.nn.Parameter):
        assert registry[kind] is reductions.reduce_tensor
    assert registry[torch.UntypedStorage] is reductions.reduce_storage
    assert hasattr(reductions.reduce_tensor, "__wrapped__")
    assert "reduce_tensor" in reductions.reduce_sparse_tensor.__code__.co_names
    assert callable(torch.UntypedStorage._new_shared)
    assert callable(torch.UntypedStorage._new_with_weak_ptr)
