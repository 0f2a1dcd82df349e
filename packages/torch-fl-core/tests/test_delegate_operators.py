"""Owns: tests of operators on a runtime that stands on another device of PyTorch: where results
are, what is refused, what errors say, how versions count, and training. What the target is:
test_delegate.py.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pretend_device import loading
from pretend_device.processes import on_pretend_device

pretend = torch.ops.pretend


# -- where results are


@on_pretend_device
def test_results_are_where_the_arguments_are() -> None:
    for index in (0, 1):
        device = torch.device("flagos", index)
        x = torch.full((3, 3), 2.0, device=device)
        results = [
            x + 1,
            x @ x,
            torch.addmm(x, x, x),
            x.sum(),
            x.sum(0),
            torch.cat([x, x]),
            x.max(0).values,
            torch.zeros_like(x),
            x.new_ones(2),
            torch.arange(3, device=device),
            torch.randn(3, device=device),
            torch.ones(3, device=device) * torch.tensor(2.0),
            x.split(1)[1],
            torch._foreach_add([x, x], 1)[1],
            x[x > 1],
        ]
        for result in results:
            assert result.device == device
            assert pretend.seen(result)[0] == f"hpu:{index}"
        assert (x @ x).cpu().tolist() == [[12.0] * 3] * 3
        assert pretend.told(f"mm on hpu:{index}") == 2
    assert pretend.current_device() == 0


@on_pretend_device
def test_third_party_operators_of_the_target_run() -> None:
    def setup(ctx, inputs, output) -> None:
        ctx.factor = inputs[1]

    torch.library.register_autograd(
        "pretend::scale", lambda ctx, grad: (grad * ctx.factor, None), setup_context=setup
    )
    x = torch.ones(3, device="flagos:1", requires_grad=True)
    y = pretend.scale(x, 3.0)
    assert y.device == torch.device("flagos:1")
    y.sum().backward()
    assert x.grad.tolist() == [3.0] * 3

    seen = []
    library = torch.library.Library("later", "DEF")
    library.define("twice(Tensor x, Tensor(a!) log) -> Tensor")

    def twice(x: torch.Tensor, log: torch.Tensor) -> torch.Tensor:
        seen.append((x.device, log.device))
        log.add_(1)
        return x * 2

    library.impl("twice", twice, "HPU")
    log = torch.zeros(1, device="flagos:1")
    z = torch.ops.later.twice(x.detach(), log)
    assert seen == [(torch.device("hpu:1"),) * 2]
    assert z.device == torch.device("flagos:1")
    assert z.tolist() == [2.0] * 3
    assert log.item() == 1


# -- what is refused


@on_pretend_device
def test_two_flagos_devices_in_one_call_are_refused() -> None:
    zero, one = torch.ones(3, 3, device="flagos:0"), torch.ones(3, 3, device="flagos:1")
    for call in (
        lambda: zero + one,
        lambda: one @ zero,
        lambda: torch.cat([zero, one]),
        lambda: zero.add_(one),
        lambda: torch.add(zero, zero, out=one),
        lambda: torch.where(zero > 0, zero, one),
        lambda: torch.nn.functional.linear(zero, one),
    ):
        with pytest.raises(RuntimeError, match="same device") as error:
            call()
        assert "flagos:0" in str(error.value)
        assert "flagos:1" in str(error.value)
        assert "hpu" not in str(error.value)


@on_pretend_device
def test_flagos_and_the_target_itself_in_one_call_are_refused() -> None:
    ours, theirs = torch.ones(3, 3, device="flagos:1"), torch.ones(3, 3, device="hpu:1")
    scalar = torch.tensor(1.0, device="hpu:1")
    for call in (
        lambda: ours + theirs,
        lambda: theirs + ours,
        lambda: theirs.add_(ours),
        lambda: ours @ theirs,
        lambda: theirs @ ours,
        lambda: ours * scalar,
        lambda: torch.cat([ours, theirs]),
        lambda: torch.cat([theirs, ours]),
        lambda: torch.add(ours, ours, out=theirs),
        lambda: torch.add(theirs, theirs, out=ours),
        lambda: torch.where(ours > 0, ours, theirs),
        lambda: torch.nn.functional.linear(ours, theirs),
        lambda: torch.nn.functional.layer_norm(ours, (3,), theirs[0]),
    ):
        with pytest.raises(RuntimeError, match="same device") as error:
            call()
        assert "flagos:1" in str(error.value)
        assert "hpu:1" in str(error.value)
    with pytest.raises(RuntimeError, match="storage"):
        torch.empty(0, device="flagos:1").set_(theirs)


@on_pretend_device
def test_lists_of_flagos_and_the_target_itself_do_not_mix() -> None:
    ours, theirs = torch.ones(3, device="flagos:1"), torch.ones(3, device="hpu:1")
    with pytest.raises(RuntimeError, match="same device"):
        torch._foreach_add_([ours], [theirs])
    results = torch._foreach_add([ours, theirs], 1)  # tensor by tensor, as CUDA does
    assert [str(x.device) for x in results] == ["flagos:1", "hpu:1"]


@on_pretend_device
def test_lists_may_span_devices() -> None:
    lists = [[torch.ones(2, device=f"flagos:{i}") for i in (0, 1)] for _ in range(2)]
    torch._foreach_add_(lists[0], lists[1], alpha=2)
    torch._foreach_mul_(lists[0], 2)
    assert [x.tolist() for x in lists[0]] == [[6.0] * 2] * 2
    results = torch._foreach_add(lists[0], lists[1])
    assert [x.device.index for x in results] == [0, 1]


@on_pretend_device
def test_backward_on_the_target_itself_has_a_clear_error() -> None:
    x = torch.ones(3, device="hpu:1", requires_grad=True)
    loss = (x * 2).sum()
    with pytest.raises(RuntimeError, match="hpu tensor, but this process uses flagos"):
        loss.backward()


# -- what errors say

KINDS = {
    "index": IndexError,
    "value": ValueError,
    "type": TypeError,
    "not implemented": NotImplementedError,
    "linalg": torch.linalg.LinAlgError,
    "memory": torch.OutOfMemoryError,
    "other": RuntimeError,
}


@on_pretend_device
def test_errors_name_the_devices_that_the_caller_knows() -> None:
    for index in (0, 1):
        x = torch.ones(3, 4, device=f"flagos:{index}")
        with pytest.raises(RuntimeError, match=rf"a matrix of \[3, 4\] on flagos:{index} cannot"):
            x @ x
        for kind, expected in KINDS.items():
            with pytest.raises(expected) as error:
                pretend.complain(x, kind)
            assert type(error.value) is expected
            text = str(error.value).splitlines()[0]
            assert text.startswith(f"no luck on flagos:{index} with {kind},")
            assert text.endswith("and nothing on my_hpu:1"), "what only looks like a device stays"


@on_pretend_device
def test_errors_about_two_devices_name_both() -> None:
    zero, one = torch.ones(1, device="flagos:0"), torch.ones(1, device="flagos:1")
    with pytest.raises(RuntimeError, match="left is on flagos:0, right is on flagos:1"):
        pretend.compare(zero, one)
    with pytest.raises(RuntimeError, match="left is on flagos:1, right is on flagos:0"):
        pretend.compare(one, zero)


@on_pretend_device
def test_errors_of_the_target_itself_are_left_alone() -> None:
    x = torch.ones(3, 4, device="hpu:1")
    with pytest.raises(RuntimeError, match="on hpu:1 cannot"):
        x @ x
    with pytest.raises(RuntimeError, match=r"left is on \w+:1, right is on hpu:1"):
        pretend.compare(torch.ones(1, device="flagos:1"), x)


# -- versions

WRITES = {
    "add_": lambda x, y: x.add_(y),
    "mul_ by a number": lambda x, y: x.mul_(2),
    "fill_": lambda x, y: x.fill_(3),
    "zero_": lambda x, y: x.zero_(),
    "copy_": lambda x, y: x.copy_(y),
    "copy_ from the CPU": lambda x, y: x.copy_(torch.ones(3)),
    "uniform_": lambda x, y: x.uniform_(),
    "out=": lambda x, y: torch.add(y, y, out=x),
    "mm out=": lambda x, y: torch.mm(y.view(3, 1), y.view(1, 3), out=x.resize_(3, 3)),
    "resize_": lambda x, y: x.resize_(50),
    "set_": lambda x, y: x.set_(y.clone()),
    "index_put_": lambda x, y: x.__setitem__(torch.tensor([0], device=x.device), 7.0),
    "a view": lambda x, y: x[1:].mul_(2),
    "_foreach_add_.List": lambda x, y: torch._foreach_add_([x], [y]),
    "_foreach_add_.Scalar": lambda x, y: torch._foreach_add_([x], 1),
    "_foreach_mul_.Tensor": lambda x, y: torch._foreach_mul_([x], y[0]),
    "_foreach_addcdiv_": lambda x, y: torch._foreach_addcdiv_([x], [y], [y], value=2),
    "_foreach_lerp_": lambda x, y: torch._foreach_lerp_([x], [y], 0.5),
    "_foreach_sqrt_": lambda x, y: torch._foreach_sqrt_([x]),
    "_foreach_zero_": lambda x, y: torch._foreach_zero_([x]),
    "_foreach_copy_": lambda x, y: torch._foreach_copy_([x], [y]),
    # the target has no kernel over lists for this one
    "_foreach_sub_.List": lambda x, y: torch._foreach_sub_([x], [y]),
    "_foreach_sub_.Scalar": lambda x, y: torch._foreach_sub_([x], 1),
    "a list twice": lambda x, y: [torch._foreach_add_([x], [y]) for _ in range(2)],
    "nothing": lambda x, y: [x + y, x.view(3, 1), torch._foreach_add([x], [y])],
}


@on_pretend_device
def test_versions_count_as_on_the_target() -> None:
    wrong = {}
    for name, write in WRITES.items():
        seen = {}
        for device in ("hpu:1", "flagos:1"):
            x, y = torch.ones(3, device=device), torch.full((3,), 2.0, device=device)
            view = x.view(3)
            try:
                write(x, y)
            except RuntimeError as error:
                seen[device] = f"{device}: {error}"
            else:
                seen[device] = (x._version, view._version, y._version)
        if seen["flagos:1"] != seen["hpu:1"]:
            wrong[name] = seen
    assert not wrong, wrong


@on_pretend_device
def test_what_a_third_party_writes_is_counted() -> None:
    library = torch.library.Library("later", "DEF")
    library.define("grow(Tensor(a!) x, Tensor(b!)[] list, Tensor y) -> ()")

    def grow(x: torch.Tensor, tensors: list[torch.Tensor], y: torch.Tensor) -> None:
        for tensor in (x, *tensors):
            tensor.add_(y)

    library.impl("grow", grow, "HPU")
    for device in ("hpu:1", "flagos:1"):
        x, y, z = (torch.ones(3, device=device) for _ in range(3))
        torch.ops.later.grow(x, [z], y)
        assert x.tolist() == z.tolist() == [2.0] * 3
        assert (x._version > 0, z._version > 0, y._version > 0) == (True, True, False), device


@on_pretend_device
def test_a_list_kernel_that_overwrites_what_backward_needs_is_noticed() -> None:
    for write in (
        lambda x: x.add_(1),
        lambda x: torch._foreach_add_([x], [torch.ones_like(x)]),
        lambda x: torch._foreach_mul_([x], 2),
        lambda x: torch._foreach_sub_([x], 1),
    ):
        x = torch.ones(3, device="flagos:1")
        weight = torch.ones(3, device="flagos:1", requires_grad=True)
        loss = (x * weight).sum()
        write(x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


# -- training

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, foreach=True),
    "SGD, one by one": lambda p: torch.optim.SGD(p, lr=0.1, foreach=False),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "AdamW, chosen by PyTorch": lambda p: torch.optim.AdamW(p, lr=0.01),
    "AdamW, fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, foreach=True),
}


def _train(device: str, optimizer: str) -> list[float]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 1)
    )
    inputs = torch.randn(32, 4)
    wanted = inputs.pow(2).sum(1, keepdim=True)
    model.to(device)
    steps = OPTIMIZERS[optimizer](model.parameters())
    inputs, wanted = inputs.to(device), wanted.to(device)
    losses = []
    for _ in range(6):
        steps.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        steps.step()
        losses.append(loss.item())
    return losses


@on_pretend_device
def test_a_model_trains_as_on_the_cpu() -> None:
    for optimizer in OPTIMIZERS:
        ours, cpu = _train("flagos:1", optimizer), _train("cpu", optimizer)
        assert ours == pytest.approx(cpu, rel=1e-4), optimizer
        assert ours[-1] < ours[0], optimizer
    assert pretend.told("_foreach_add_.List") > 0, "the list kernel of the target ran"
    assert pretend.current_device() == 0
    assert torch.flagos.memory_allocated(0) == 0


@on_pretend_device
def test_threads_work_on_devices_of_their_own() -> None:
    weights = [torch.ones(4, 4, device=f"flagos:{i}", requires_grad=True) for i in (0, 1)]
    wrong = []

    def work(index: int) -> None:
        torch.flagos.set_device(index)
        torch.flagos.set_stream(torch.flagos.Stream())
        stream = torch.flagos.current_stream()
        for step in range(50):
            made = torch.full((4, 4), float(step), device="flagos")
            (result,) = torch.autograd.grad((weights[index] @ made).sum(), weights[index])
            right = [4.0 * step] * 4
            if result.device.index != index or result.tolist() != [right] * 4:
                wrong.append((index, step, result))
        if torch.flagos.current_stream() != stream or pretend.current_device() != index:
            wrong.append((index, "moved"))

    threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


@on_pretend_device
def test_modules_move_between_flagos_and_the_target() -> None:
    model = torch.nn.Linear(3, 3)
    weight, values = model.weight, copy.deepcopy(model.state_dict())
    for device in ("flagos:0", "hpu:1", "flagos:1", "cpu"):
        model.to(device)
        assert model.weight is weight
        assert weight.device == torch.device(device)
        assert torch.equal(weight.cpu(), values["weight"])


@on_pretend_device
def test_autocast_is_flagos_own() -> None:
    x = torch.ones(4, 4, device="flagos:1")
    with torch.autocast("flagos", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
        assert x.sum().dtype == torch.float32
    with torch.autocast("hpu", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.float32


@on_pretend_device
def test_reports_take_the_targets_time() -> None:
    from torch_fl import routing

    x = torch.ones(64, 64, device="flagos:1")
    with routing.report() as report:
        x @ x
    rows = {row.operator: row for row in report.rows}
    assert rows["aten::mm"].calls == 1
    assert rows["aten::mm"].device_time_s > 0
    assert pretend.told("record") >= 2
    assert pretend.told("events alive") == 0


@on_pretend_device(activate=False)
def test_kernels_over_lists_may_take_tensors_as_they_are() -> None:
    seen = []

    def kernel(name: str, each: Callable[..., torch.Tensor]) -> None:
        def run(*given: Any) -> list[torch.Tensor] | None:
            lists = [value for value in given if isinstance(value, list)]
            seen.append((name, *(str(tensor.device) for tensor in lists[0])))
            results = [each(*members, *given[len(lists) :]) for members in zip(*lists, strict=True)]
            return None if name.partition(".")[0].endswith("_") else results

        library.impl(f"aten::{name}", run, "HPU")

    library = torch.library.Library("aten", "IMPL")
    kernel("_foreach_mul_.Scalar", lambda x, by: x.mul_(by))
    kernel("_foreach_sub.List", lambda x, y: x - y)
    loading.activate(foreach_takes_any_device=True)
    x, y = torch.full((2,), 5.0, device="flagos:1"), torch.ones(2, device="flagos:1")
    before = x._version
    torch._foreach_mul_([x, y], 2)
    assert x.tolist() == [10.0] * 2
    assert x._version == before + 1
    (difference,) = torch._foreach_sub([x], [y])
    assert difference.device == x.device
    assert difference.tolist() == [8.0] * 2
    assert seen == [
        ("_foreach_mul_.Scalar", "flagos:1", "flagos:1"),
        ("_foreach_sub.List", "flagos:1"),
    ]
    # Several devices, tensors of the target itself: as before.
    other = torch.ones(2, device="flagos:0")
    torch._foreach_mul_([x, other], 2)
    assert (x.tolist(), other.tolist()) == ([20.0] * 2, [2.0] * 2)
    theirs = torch.ones(2, device="hpu:1")
    with pytest.raises(RuntimeError, match="two devices"):
        torch._foreach_sub([x], [theirs])
    with pytest.raises(RuntimeError, match="at least one tensor"):
        torch._foreach_mul_([], 2)
    optimizer_steps_as_without_lists()


def optimizer_steps_as_without_lists() -> None:
    results = []
    for foreach in (False, True):
        x = torch.nn.Parameter(torch.full((3,), 2.0, device="flagos"))
        optimizer = torch.optim.AdamW([x], lr=0.1, foreach=foreach)
        for _ in range(3):
            optimizer.zero_grad()
            (x * x).sum().backward()
            optimizer.step()
        results.append(x.tolist())
    assert results[0] == pytest.approx(results[1])
